"""Routes: rules on a request, and a cascade by what a model makes of its own first tokens."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from surefoot.api import LLM, SamplingParams
from surefoot.api.answers import Logprob, Piece
from surefoot.api.confidence import Confidence, sampled_logprobs
from surefoot.front.catalog import Catalog
from surefoot.front.config import FrontConfig, FrontConfigError, ModelEntry, check_names, read_config_file
from surefoot.front.routing import ROUTE_HEADER, AskedFor, Route, RoutePlan, RouteRule, object_in
from surefoot.front.sensitivity import Privacy, Upstream
from surefoot.front.serve import check_upstreams
from surefoot.server.access.shares import ANYONE, Caller
from surefoot.server.access.sure_check import RULE_HEADER, SureCheck, SureRule
from surefoot.server.errors import ApiError
from surefoot.server.settings import ServerSettings
from tests.front.many import config_file
from tests.server.process import Server
from tests.stories import stories_gguf

CHAT = "/v1/chat/completions"
SURE = SureRule(tokens=4, mean_logprob=-1.0)

# ---- rules ----

RULES = (
    RouteRule("b", tools=True),
    RouteRule("c", longer_than=100, schema=False),
    RouteRule("c", users=("alice", "key7")),
    RouteRule("b", headers={"x-task": "code"}, schema=True),
)
ROUTE = Route("auto", ("a", "b"), SURE, RULES)


@pytest.mark.parametrize(
    ("asked", "caller", "headers", "models", "why"),
    [
        (AskedFor("auto"), ANYONE, {}, ("a", "b"), "last"),
        (AskedFor("auto", tools=True), ANYONE, {}, ("b",), "rule 1"),
        (AskedFor("auto", 101), ANYONE, {}, ("c",), "rule 2"),
        (AskedFor("auto", 101, schema=True), ANYONE, {}, ("a", "b"), "last"),
        (AskedFor("auto", 100), ANYONE, {}, ("a", "b"), "last"),
        (AskedFor("auto"), Caller("alice"), {}, ("c",), "rule 3"),
        (AskedFor("auto"), Caller("bob", "key7"), {}, ("c",), "rule 3"),
        (AskedFor("auto", schema=True), ANYONE, {"X-Task": "code"}, ("b",), "rule 4"),
        (AskedFor("auto"), ANYONE, {"x-task": "code"}, ("a", "b"), "last"),
        (AskedFor("auto", tools=True), ANYONE, {ROUTE_HEADER: "c"}, ("c",), "asked for"),
    ],
)
def test_the_first_rule_that_holds_decides(
    asked: AskedFor, caller: Caller, headers: dict[str, str], models: tuple[str, ...], why: str
) -> None:
    plan = ROUTE.plan(CHAT, asked, caller, Headers(headers))
    assert (plan.models, plan.why) == (models, why)
    assert [plan.rule_for(number) for number in range(len(models))] == [SURE] * (len(models) - 1) + [None]


def test_only_answers_have_a_cascade() -> None:
    assert ROUTE.plan("/tokenize", AskedFor("auto"), ANYONE, Headers()) == RoutePlan("auto", ("a",), "first")


def test_a_model_that_the_route_lacks_cannot_be_asked_for() -> None:
    with pytest.raises(ApiError, match="'auto' has no model 'd': use one of a, b, c"):
        ROUTE.plan(CHAT, AskedFor("auto"), ANYONE, Headers({ROUTE_HEADER: "d"}))


@pytest.mark.parametrize(
    ("body", "tools", "schema"),
    [
        ({}, False, False),
        ({"tools": [{}]}, True, False),
        ({"tools": [], "response_format": {"type": "text"}}, False, False),
        ({"response_format": {"type": "json_object"}}, False, True),
        ({"text": {"format": {"type": "json_schema"}}}, False, True),
        ({"text": "a", "format": "json"}, False, True),
        ({"grammar": "root ::= a"}, False, True),
    ],
)
def test_what_a_body_asks_for(body: dict[str, Any], tools: bool, schema: bool) -> None:
    data = json.dumps({"model": "auto", **body}).encode()
    assert AskedFor.of(object_in(data), len(data)) == AskedFor("auto", len(data), tools, schema)


def test_a_route_is_for_those_who_may_use_all_its_models() -> None:
    models = [ModelEntry("a", "x"), ModelEntry("b", "y", users=("alice",)), ModelEntry("c", "z")]
    catalog = Catalog(models, routes=[ROUTE])
    assert catalog.plan(CHAT, AskedFor("auto:latest"), Caller("alice"), Headers()).route == "auto"
    assert catalog.find("auto", Caller("alice")).name == "a"
    with pytest.raises(ApiError, match=r"there is no model 'auto' here: use one of 'a', 'c'$"):
        catalog.plan(CHAT, AskedFor("auto"), Caller("bob"), Headers())


# ---- the file ----

MODEL = '[[model]]\nname = "a"\nfile = "x"\n'


def test_a_route_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "surefoot.toml"
    path.write_text(
        MODEL + '[[route]]\nname = "auto"\nmodels = ["a", "b"]\nsure = {tokens = 4, mean-logprob = -1}\n'
        '[[route.rule]]\nmodel = "c"\nlonger-than = "20KB"\nschema = false\nheaders = {x-task = "code"}\n'
    )
    rule = RouteRule("c", longer_than=20_000, schema=False, headers={"x-task": "code"})
    assert [table.route() for table in read_config_file(path).route] == [Route("auto", ("a", "b"), SURE, (rule,))]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('models = ["a", "b"]', "give it if there are several"),
        ('models = ["a"]\nsure = {tokens = 1, mean-logprob = -1}', "give it if there are several"),
        ('models = ["a", "b"]\nsure = {tokens = 4}', "give mean-logprob, least-logprob or both"),
        ('models = ["a", "b"]\nsure = {tokens = 4, mean-logprob = 1}', "less than or equal to 0"),
        ('models = ["a"]\n[[route.rule]]\nmodel = "a"', "give a condition: "),
        ("models = []", "at least 1 item"),
    ],
)
def test_faults_of_a_route(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "surefoot.toml"
    path.write_text(f'{MODEL}[[route]]\nname = "auto"\n{text}')
    with pytest.raises(FrontConfigError, match=complaint):
        read_config_file(path)


UPSTREAM = '[[upstream]]\nname = "u"\nurl = "https://api.example.org/v1"\nmodel = "m"\nallows = "internal"\n'


def test_an_upstream_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "surefoot.toml"
    path.write_text(
        'private-patterns = ["(?i)secret"]\n' + MODEL + UPSTREAM + 'key-env = "K"\ntimeout = "5s"\n'
        '[[route]]\nname = "r"\nmodels = ["a", "u", "a"]\nsure = {tokens = 4, mean-logprob = -1}\n'
        '[[route.rule]]\nmodel = "u"\ntools = true\n'
    )
    tables = read_config_file(path)
    assert tables.upstream[0].upstream() == Upstream("u", "https://api.example.org/v1", "m", Privacy.INTERNAL, "K", 5.0)
    [route] = tables.routes()
    assert (route.targets, route.upstreams, route.first) == ({"a"}, {"u"}, "a")
    assert route.plan(CHAT, AskedFor("r", tools=True), ANYONE, Headers()).models == ("u", "a")
    assert route.plan(CHAT, AskedFor("r"), ANYONE, Headers({ROUTE_HEADER: "u"})).models == ("u", "a")
    assert route.plan("/tokenize", AskedFor("r"), ANYONE, Headers()).models == ("a",)
    assert tables.private_patterns == ["(?i)secret"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (UPSTREAM.replace("internal", "private"), "Input should be 'public' or 'internal'"),
        (UPSTREAM.replace('allows = "internal"', ""), "allows is missing"),
        (UPSTREAM.replace("https://", "https://user:word@"), "upstream.0.url: String should match"),
        (UPSTREAM.replace("https", "ftp"), "upstream.0.url: String should match"),
        (UPSTREAM + '[[route]]\nname = "r"\nmodels = ["u"]', "'r' ends with an upstream"),
        (UPSTREAM + '[[route]]\nname = "r"\nmodels = ["a", "u", "a"]', "'r': `sure` says when"),
        (UPSTREAM + 'key = "sk-1"', "unknown field upstream.0.key"),
    ],
)
def test_faults_of_an_upstream(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "surefoot.toml"
    path.write_text(MODEL + text)
    with pytest.raises(FrontConfigError, match=re.escape(complaint)):
        read_config_file(path)


def test_a_pattern_that_cannot_be_checked_in_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "surefoot.toml"
    path.write_text("private-patterns = ['(a)\\1']\n" + MODEL)
    with pytest.raises(FrontConfigError, match=r"private-patterns\.0: backreferences are not supported$"):
        read_config_file(path)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "an upstream needs --keys"),
        ({"keys": "some"}, "an upstream needs --audit-log"),
        ({"keys": "some", "audit_log": Path("x")}, "the environment has no SUREFOOT_TEST_KEY"),
    ],
)
def test_an_upstream_needs_keys_and_an_audit_log(settings: dict[str, Any], complaint: str) -> None:
    upstream = Upstream("u", "https://api.example.org/v1", "m", Privacy.PUBLIC, "SUREFOOT_TEST_KEY")
    config = FrontConfig((ModelEntry("a", "x"),), upstreams=(upstream,))
    keys: Any = settings.pop("keys", None)
    with pytest.raises(FrontConfigError, match=complaint):
        check_upstreams(config, ServerSettings(**settings), keys)
    assert check_upstreams(replace(config, upstreams=()), ServerSettings(), None) == {}


def test_a_route_leads_to_models_and_has_a_name_of_its_own() -> None:
    models = (ModelEntry("a", "x"), ModelEntry("auto", "y"))
    with pytest.raises(FrontConfigError, match="leads to 'c', which is no model's name"):
        check_names(FrontConfig(models, routes=(Route("r", ("a",), rules=(RouteRule("c", tools=True),)),)))
    with pytest.raises(FrontConfigError, match="have the name 'auto'"):
        check_names(FrontConfig(models, routes=(Route("auto", ("a",)),)))
    with pytest.raises(FrontConfigError, match="have the name 'a'"):
        check_names(FrontConfig(models, upstreams=(Upstream("a", "http://x", "m", Privacy.PUBLIC),)))


# ---- how sure a model is ----


@given(st.data(), st.lists(st.lists(st.floats(-20, 0), min_size=1, max_size=7), min_size=1, max_size=3))
def test_a_check_does_not_depend_on_how_tokens_come(data: st.DataObject, answers: list[list[float]]) -> None:
    """In pieces of any length, of several answers in any order: the same confidence."""
    left = {index: list(values) for index, values in enumerate(answers)}
    check = SureCheck(SURE)
    while left:
        index = data.draw(st.sampled_from(sorted(left)))
        count = data.draw(st.integers(1, len(left[index])))
        part, left[index] = left[index][:count], left[index][count:]
        reason = None if left[index] else "stop"
        if reason:
            del left[index]
        check.take(Piece(index, "", (5,) * count, tuple({5: Logprob(value, "a", None)} for value in part), reason))
    assert check.is_decided(len(answers))
    firsts = [value for values in answers for value in values[: SURE.tokens]]
    mean, least = math.fsum(firsts) / len(firsts), min(firsts)
    try:
        check.decide()
    except ApiError:
        assert mean < -1.0
    else:
        assert mean >= -1.0
    assert check.found is not None
    assert (check.found.tokens, check.found.mean_logprob, check.found.least_logprob) == (len(firsts), mean, least)


# ---- real processes ----

PROMPTS = [f"{word} upon a {noun}" for word in ("Once", "Twice", "Sitting") for noun in ("time", "tree", "quark")]
TOKENS = 5


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, float]]:
    """A front whose route asks model a and then b, and the bound by which a declines about half of the prompts."""
    options = ("--max-context", "512", "--max-running", "8")
    folder = tmp_path_factory.mktemp("routes")
    path = config_file(folder, b={"chat-template": '"chatml"'})  # b is another model, by its answers
    models = path.read_text()
    with closing(LLM(stories_gguf(), max_context=512, kv_bytes=16 << 20)) as llm:
        answers = llm.chat(
            [user_says(prompt) for prompt in PROMPTS], SamplingParams(temperature=0, max_tokens=TOKENS, logprobs=0)
        )
    scores = sorted(Confidence.of([*sampled_logprobs(answer.outputs[0].logprobs)]).mean_logprob for answer in answers)
    bound = (scores[4] + scores[5]) / 2
    path.write_text(
        f'{models}\n[[route]]\nname = "auto"\nmodels = ["a", "b"]\n'
        f"sure = {{tokens = {TOKENS}, mean-logprob = {bound!r}}}\n"
        '[[route.rule]]\nmodel = "c"\nheaders = {x-task = "code"}\n'
    )
    made = Server(None, "--config", str(path), *options)
    yield made, bound
    made.stop()


def user_says(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def body(prompt: str, **more: Any) -> dict[str, Any]:
    return {"messages": user_says(prompt), "max_tokens": 12, "temperature": 0, "seed": 1, **more}


def direct_score(server: Server, prompt: str) -> dict[str, float]:
    reply = httpx.post(f"{server.root}{CHAT}", json=body(prompt, model="a", logprobs=True))
    found = [token["logprob"] for token in reply.json()["choices"][0]["logprobs"]["content"]][:TOKENS]
    return {"tokens": len(found), "mean_logprob": math.fsum(found) / len(found), "least_logprob": min(found)}


def test_who_answers(servers: tuple[Server, float]) -> None:
    """By the logprobs that the model tells of itself; the answer is that of the model, asked by name."""
    server, bound = servers
    models = []
    for prompt in PROMPTS:
        score = direct_score(server, prompt)
        is_sure = score["mean_logprob"] >= bound
        for _ in range(2):  # the same request, the same route
            reply = httpx.post(f"{server.root}{CHAT}", json=body(prompt, model="auto"))
            told, said = json.loads(reply.headers[ROUTE_HEADER]), reply.json()
            assert told == {
                "route": "auto", "model": said["model"], "why": "sure" if is_sure else "last",
                "scores": {"a": {**score, "is_sure": is_sure}},
            }  # fmt: skip
            assert said["model"] == ("a" if is_sure else "b")
        direct = httpx.post(f"{server.root}{CHAT}", json=body(prompt, model=said["model"])).json()
        assert said["choices"] == direct["choices"]
        assert said["choices"][0]["logprobs"] is None
        models.append(said["model"])
    assert set(models) == {"a", "b"}
    assert server.metric(r'surefoot:routed_requests_total\{[^}]*why="sure"[^}]*\}') == 2 * models.count("a")
    assert server.metric(r'surefoot:routed_seconds_total\{[^}]*model_name="a"[^}]*\}') > 0


def requests_of(prompt: str) -> dict[str, dict[str, Any]]:
    greedy = {"temperature": 0, "seed": 1, "num_predict": 12}
    return {
        CHAT: body(prompt),
        "/v1/completions": {"prompt": prompt, "max_tokens": 12, "temperature": 0, "seed": 1},
        "/v1/messages": {"messages": [{"role": "user", "content": prompt}], "max_tokens": 12, "temperature": 0},
        "/v1/responses": {"input": prompt, "max_output_tokens": 16, "temperature": 0},
        "/api/chat": {"messages": [{"role": "user", "content": prompt}], "options": greedy},
        "/api/generate": {"prompt": prompt, "options": greedy},
    }


@pytest.mark.parametrize("stream", [False, True])
def test_every_api_has_the_same_text_as_the_model_itself(servers: tuple[Server, float], stream: bool) -> None:
    server, _ = servers
    for prompt in PROMPTS[3:6]:
        for path, asked in requests_of(prompt).items():
            routed = httpx.post(f"{server.root}{path}", json={**asked, "model": "auto", "stream": stream})
            told = json.loads(routed.headers[ROUTE_HEADER])
            assert routed.status_code == 200, routed.text
            direct = httpx.post(f"{server.root}{path}", json={**asked, "model": told["model"], "stream": stream})
            assert ROUTE_HEADER not in direct.headers
            assert texts_in(routed.text) == texts_in(direct.text), path


def texts_in(reply: str) -> str:
    """Every text in a reply, whatever its form, in order."""
    lines = [line.removeprefix("data: ") for line in reply.splitlines()]
    found: list[str] = []
    for line in lines:
        if line.startswith("{"):
            collect(json.loads(line), found)
    return "".join(found)


def collect(value: Any, found: list[str]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("text", "content", "response", "delta") and isinstance(item, str):
                found.append(item)
            collect(item, found)
    elif isinstance(value, list):
        for item in value:
            collect(item, found)


def test_a_broken_stream_goes_on_with_the_model_that_began_it(servers: tuple[Server, float]) -> None:
    server, _ = servers
    resumed_by = set()
    for prompt in PROMPTS:
        asked = body(prompt, model="auto", stream=True)
        events = httpx.post(f"{server.root}{CHAT}", json=asked).text.split("\n\n")
        position = events[1].partition("id: ")[2].partition("\n")[0]
        rest = httpx.post(f"{server.root}{CHAT}", json=asked, headers={"Last-Event-ID": position})
        assert texts_in(rest.text) == texts_in("\n\n".join(events[2:]))
        resumed_by.add(json.loads(rest.headers[ROUTE_HEADER])["model"])
    assert resumed_by == {"a", "b"}


def test_several_answers_are_judged_together(servers: tuple[Server, float]) -> None:
    server, _ = servers
    asked = body(PROMPTS[0], model="auto", n=3, temperature=1)
    first, second = (httpx.post(f"{server.root}{CHAT}", json=asked) for _ in range(2))
    assert first.headers[ROUTE_HEADER] == second.headers[ROUTE_HEADER]
    assert json.loads(first.headers[ROUTE_HEADER])["scores"]["a"]["tokens"] == 3 * TOKENS
    assert first.json()["choices"] == second.json()["choices"]


def test_rules_and_headers_decide_before_any_model(servers: tuple[Server, float]) -> None:
    server, _ = servers
    for headers, model, why in (
        ({"x-task": "code"}, "c", "rule 1"),
        ({ROUTE_HEADER: "a", "x-task": "code"}, "a", "asked for"),
        ({ROUTE_HEADER: "b", RULE_HEADER: "no JSON"}, "b", "asked for"),
    ):
        reply = httpx.post(f"{server.root}{CHAT}", json=body(PROMPTS[0], model="auto"), headers=headers)
        assert json.loads(reply.headers[ROUTE_HEADER]) == {"route": "auto", "model": model, "why": why, "scores": {}}
        assert reply.json()["model"] == model


def test_a_route_is_listed_as_a_model(servers: tuple[Server, float]) -> None:
    server, _ = servers
    assert [card["id"] for card in httpx.get(f"{server.url}/models").json()["data"]] == ["a", "b", "c", "auto"]
    assert httpx.get(f"{server.url}/models/auto").json()["id"] == "auto"
    reply = httpx.post(f"{server.root}/tokenize", json={"prompt": "Once", "model": "auto"})
    assert json.loads(reply.headers[ROUTE_HEADER])["why"] == "first"


def test_a_client_cannot_make_a_model_doubt(servers: tuple[Server, float]) -> None:
    server, _ = servers
    rule = SureRule(tokens=1, mean_logprob=0.0).model_dump_json(by_alias=True)
    reply = httpx.post(f"{server.root}{CHAT}", json=body(PROMPTS[0], model="a"), headers={RULE_HEADER: rule})
    assert reply.status_code == 200
