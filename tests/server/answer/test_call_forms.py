"""Every form of tool calls: what its grammar allows, its parser reads back."""

import json
import time
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from typing import Any

import jsonschema_rs
import pytest

from surefoot.server.answer.call_forms import FORMS, CallForm, find_form
from surefoot.server.answer.call_grammar import CallableTool, unenforced
from surefoot.server.answer.call_parser import CallParser
from surefoot.server.answer.channels import CALL, ChannelParser
from surefoot.server.answer.json_schemas import SchemaError, arguments_schema, prepare
from surefoot.server.answer.parsing import Chain, MessageDelta, whole_calls
from surefoot.server.answer.structured import (
    FREE_ARGUMENTS,
    MOST_OWN_CHARACTERS,
    AnswerConstraint,
    AskedAnswer,
    make_grammar,
)
from surefoot.server.answer.tool_calls import ModelCalls
from surefoot.server.schemas.tools import Tool
from surefoot.text.chat import ChatTemplate
from tests.server.answer.call_templates import CONTROL, TEMPLATES
from tests.server.answer.call_walks import CallGrammar
from tests.text.references import peer_templates

SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 8}, "n": {"type": "integer", "minimum": 0, "maximum": 99},
            "flag": {"type": "boolean"}, "unit": {"enum": ["c", "f", 1, None]},
            "note": {"anyOf": [{"type": "string", "minLength": 2, "maxLength": 6}, {"type": "null"}]},
            "tree": {
                "type": "object", "required": ["k"],
                "properties": {"k": {"type": "string", "maxLength": 5}, "b": {"type": "boolean"}},
            },
            "names": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1, "maxItems": 3},
            "mixed": {"type": ["string", "integer", "array"], "items": {"type": "integer"}, "maxItems": 2},
        },
        "required": ["city", "unit"],
    },
    "now": {"type": "object", "properties": {}},
    "free": {
        "type": "object", "required": ["t"],
        "properties": {"t": {"type": "string"}, "d": {"$ref": "#/$defs/d"}, "any": {}},
        "$defs": {"d": {"type": "object", "properties": {
            "x": {"type": "string", "pattern": "^[a-z]{2}$"}, "y": {"$ref": "#/$defs/d"},
        }}},
    },
    "open": {"type": "object", "additionalProperties": {"type": "integer"}},
}  # fmt: skip
TOOLS = [CallableTool(name, prepare(arguments_schema(each), closes=True).schema) for name, each in SCHEMAS.items()]
JUDGES = {tool.name: jsonschema_rs.Draft202012Validator(tool.schema) for tool in TOOLS}
NAMES = [form.name for form in FORMS]
HARD = [
    "</parameter>", "x\n</parameter>\n<parameter=n>\n1", "</arg_value>", '"quoted"', "it's", "a\nb\n", "\n", "", " a ",
    "\\n", "é ☃ 𝄞", "true", "null", "12", "{", "[1]", '<|"|>', "<tool_call>", "[TOOL_CALLS]", "<\uff5cDSML\uff5c",
    "</\uff5cDSML\uff5cparameter>", "</function>\n</tool_call>", "```", "}", ")]",
]  # fmt: skip


def form_of(name: str) -> CallForm:
    return next(form for form in FORMS if form.name == name)


def parse(form: CallForm, text: str, cuts: list[int]) -> tuple[str, list[dict[str, Any]]]:
    calls = CallParser("call_", [tool.name for tool in TOOLS] if form.plain else [], form, TOOLS)
    parser, total = Chain(ChannelParser(), calls) if form.in_channels else calls, MessageDelta()
    for start, end in pairwise([0, *cuts, len(text)]):
        total += parser.feed(text[start:end])
    total += parser.finish()
    return total.content, whole_calls(total.tool_calls)


@pytest.mark.parametrize("name", [form.name for form in FORMS if form.opening and not form.in_channels])
def test_text_alone_holds_no_beginning_of_a_call(name: str) -> None:
    form = form_of(name)
    grammar = CallGrammar(form, TOOLS, "none", CONTROL.get(name, ()))
    assert grammar.allows("Sunny, {really}:\n1 < 2.")
    assert not grammar.allows(f"Sunny.\n{form.opening}")


def check(form: CallForm, text: str) -> list[dict[str, Any]]:
    """The calls in a text, which fit their tools however the text is cut."""
    content, calls = parse(form, text, [])
    assert parse(form, text, list(range(len(text)))) == (content, calls)
    assert [call["function"]["name"] for call in calls] == [
        call["function"]["name"] for call in calls if JUDGES[call["function"]["name"]].is_valid(arguments(call))
    ], text
    return [{"id": call["id"], "name": call["function"]["name"], "arguments": arguments(call)} for call in calls]


def arguments(call: dict[str, Any]) -> Any:
    return json.loads(call["function"]["arguments"])


@cache
def grammar_of(form: CallForm, choice: Any = "required", control: tuple[str, ...] = ()) -> CallGrammar:
    return CallGrammar(form, TOOLS, choice, control)


def grammars(form: CallForm, choice: Any = "required") -> list[CallGrammar]:
    """For vocabularies with the form's special tokens, and without."""
    own = CONTROL["harmony"] if form.in_channels else CONTROL.get(form.name, ())
    return [grammar_of(form, choice, control) for control in ([own] if form.in_channels else {(), own})]


@pytest.mark.parametrize("choice", ["required", "auto"])
@pytest.mark.parametrize("name", NAMES)
def test_what_the_grammar_allows_is_read_back(name: str, choice: Any) -> None:
    form = form_of(name)
    before = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant " if form.in_channels else "Well:\n"
    begin = before + form.opening if form.opening else '{"name": "now", "parameters": '
    begin = "" if choice == "required" else begin
    for grammar in grammars(form, choice):
        texts = [text for seed in range(10) if (text := grammar.walk(seed, begin)) is not None]
        assert len(texts) > 6
        for text in texts:
            assert check(form, text), text
            if choice == "required" and not form.in_channels:
                assert parse(form, text, [])[0] == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_string_survives_or_cannot_be_written(name: str) -> None:
    form = form_of(name)
    for grammar, text in product(grammars(form), HARD):
        call = {"id": "a1b2c3d4e", "name": "free", "arguments": {"t": text}}
        written = form.write_calls([call])
        ends = form.tag or form.quote
        is_allowed = grammar.allows(CALL * form.in_channels + written, spelled=text)
        assert is_allowed == (not (form.argument and ends in text) or form.quote == "'"), written
        if is_allowed:
            (found,) = check(form, written)
            assert (found["name"], found["arguments"]) == ("free", {"t": text})
            assert found["id"] == (call["id"] if "$id" in form.call else "call_0")


VALUES: list[tuple[str, Any]] = [
    ("flag", True), ("flag", False), ("unit", None), ("unit", 1), ("note", None), ("note", "12"), ("mixed", 12),
    ("mixed", "12 a"), ("mixed", [1, 2]), ("tree", {"k": "</p>", "b": False}), ("names", ["a", '"']), ("n", 0),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_arguments_get_their_types(name: str) -> None:
    form = form_of(name)
    for grammar, (key, value) in product(grammars(form), VALUES):
        given = {"city": "Oslo", "unit": "c", key: value}
        ordered = {word: given[word] for word in SCHEMAS["weather"]["properties"] if word in given}
        written = form.write_calls([{"id": "a1b2c3d4e", "name": "weather", "arguments": ordered}])
        assert grammar.allows(CALL * form.in_channels + written), written
        assert check(form, written)[0]["arguments"] == given


@pytest.mark.parametrize("name", [form.name for form in FORMS if form.several])
def test_several_calls(name: str) -> None:
    form = form_of(name)
    calls = [
        {"id": f"a1b2c3d4{number}", "name": tool, "arguments": given}
        for number, (tool, given) in enumerate([("now", {}), ("free", {"t": "a"}), ("now", {})])
    ]
    written = form.write_calls(calls)
    assert grammar_of(form).allows(written)
    assert [(call["name"], call["arguments"]) for call in check(form, written)] == [
        (call["name"], call["arguments"]) for call in calls
    ]
    assert parse(form, f"First.\n{written}\nDone.", [])[0] == "First.\nDone."


@pytest.mark.parametrize("name", [form.name for form in FORMS if form.argument])
def test_a_call_that_does_not_fit_cannot_be_written(name: str) -> None:
    form = form_of(name)
    grammar = grammar_of(form)
    whole = {"city": "Oslo", "unit": "c"}
    changes = ({"city": "far too long"}, {"unit": "k"}, {"n": 100}, {"note": "a"}, {"more": "a"}, {"mixed": ["a"]})
    for given in ({"city": "Oslo"}, {"unit": "c"}, *({**whole, **change} for change in changes)):
        written = form.write_calls([{"id": "a1b2c3d4e", "name": "weather", "arguments": given}])
        assert not grammar.allows(written), written


def test_a_line_that_a_model_leaves_out_is_no_part_of_the_string() -> None:
    form = form_of("qwen xml")
    written = form.write_calls([{"id": "", "name": "free", "arguments": {"t": "a\nb"}}])
    for text in (written, written.replace("b\n</p", "b</p")):
        assert grammar_of(form).allows(text)
        assert check(form, text)[0]["arguments"] == {"t": "a\nb"}


def test_what_no_grammar_of_the_form_holds_is_told() -> None:
    schema = {
        "type": "object", "minProperties": 1,
        "properties": {"a": {"type": "string", "format": "date"}, "b": {"type": "string", "pattern": "^a|b$"}},
    }  # fmt: skip
    assert unenforced(form_of("qwen xml"), schema) == ("minProperties", "format", "pattern")
    assert unenforced(form_of("hermes"), schema) == ()


# ---- recognition ----


TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def found_in(source: str) -> CallForm | None:
    template = ChatTemplate(source, TOKENS)
    try:
        return find_form([source], template.render)
    finally:
        template.close()


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_show_their_form(name: str) -> None:
    found = found_in(TEMPLATES[name])
    assert found == replace(form_of(name), is_written=name != "granite")


def test_what_a_template_shows_of_its_form() -> None:
    source = TEMPLATES["qwen xml"]
    joined = found_in(source.replace("{{ '\\n' if not loop.last }}", ""))
    assert joined is not None
    assert joined == replace(form_of("qwen xml"), between="")
    silent = found_in(source.replace("{{ tool.function.name }}", ""))
    assert silent is not None
    assert not silent.is_described
    assert found_in(source.replace("<function=", "<tool=")) is None
    assert found_in("{{ messages[0].content }}<tool_call>") is None


# By the form that is found in them; the others describe tools in no form of the table, or not at all.
PEERS = {
    "apriel": ["Apriel-1.6-15b-Thinker-fixed", "unsloth-Apriel-1.5"],
    "deepseek": ["deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"],
    "deepseek 3.1": ["deepseek-ai-DeepSeek-V3.1"],
    "deepseek 4": ["deepseek-ai-DeepSeek-V4", "deepseek-ai-DeepSeek-V4-Flash-0731"],
    "deepseek xml": ["deepseek-ai-DeepSeek-V3.2"],
    "gemma": ["google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"],
    "glm": ["GLM-4.6", "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2"],
    "glm 4.7": ["GLM-4.7-Flash", "Spark2.5", "poolside-Laguna-S-2.1"],
    "granite": ["ibm-granite-granite-3.3-2B-Instruct"],
    "harmony": ["openai-gpt-oss-120b"],
    "harmony with types": ["llm-jp-llm-jp-4.1-8b-thinking"],
    "hermes": [
        "Bielik-11B-v3.0-Instruct", "MiMo-VL", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Qwen-QwQ-32B", "Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B",
        "Reka-Edge", "ibm-granite-granite-4.0", "ibm-granite-granite-4.1",
    ],
    "lfm": ["LFM2-8B-A1B", "LFM2.5-8B-A1B", "LFM2.5-Instruct"],
    "ling": ["inclusionai-ling-3.0-flash"],
    "llama": [
        "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct",
    ],
    "minimax 1": ["MiniMax-M1"],
    "minimax 2": ["MiniMax-M2"],
    "mistral": ["mistralai-Ministral-3-14B-Reasoning-2512", "unsloth-mistral-Devstral-Small-2507"],
    "mistral list": ["mistralai-Mistral-Nemo-Instruct-2407"],
    "mistral with ids": ["Mistral-Small-3.2-24B-Instruct-2506"],
    "nemotron": ["NVIDIA-Nemotron-Nano-v2"],
    "qwen xml": ["NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen3-Coder", "Qwen3.5-4B", "StepFun3.5-Flash"],
    "seed": ["ByteDance-Seed-OSS"],
}  # fmt: skip


# Whose templates write another text for such a call: other escapes, and Python's notation of lists and objects.
CHANGED = {"Reka-Edge", "ByteDance-Seed-OSS", "LFM2.5-8B-A1B"}


@pytest.mark.nightly
def test_real_templates() -> None:
    """Their form is found, and they write a call of the history as the model wrote it."""
    found: dict[str, list[str]] = {}
    changed = set()
    for name, source in peer_templates().items():
        if (form := found_in(source)) is not None:
            found.setdefault(form.name, []).append(name)
            changed |= set() if not form.is_written or keeps_a_call(source, form) else {name}
    assert {name: sorted(files) for name, files in found.items()} == PEERS
    assert changed == CHANGED


def keeps_a_call(source: str, form: CallForm) -> bool:
    given = {"a": 'Par "is"\né', "b": 3, "c": True, "d": 1.5, "e": {"k": 'v "é', "l": False}, "f": ["a", "b"]}
    kinds = ("string", "integer", "boolean", "number", "object", "array")
    schema = {
        "type": "object",
        "properties": {
            key: {"type": kind, "description": key, "items": {"type": "string"}}
            for key, kind in zip(given, kinds, strict=True)
        },
    }
    function = {"name": "weather", "description": "Of a city.", "parameters": schema}
    call = {"id": "a1b2c3d4e", "type": "function", "function": {"name": "weather", "arguments": json.dumps(given)}}
    messages = [
        {"role": "user", "content": "Go."}, {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "sunny"},
    ]  # fmt: skip
    written = form.write_call({"name": "weather", "id": "a1b2c3d4e", "arguments": given})
    end = "}" if form.name in ("mistral list", "apriel") else ""  # before it, the template writes an id
    return written.removesuffix(end) in rendered(source, messages, [{"type": "function", "function": function}])


def rendered(source: str, messages: list[Any], tools: list[Any]) -> str:
    template = ChatTemplate(source, TOKENS)
    try:
        return template.render(messages, tools=tools)
    finally:
        template.close()


# ---- schemas that clients send ----


def constrained(name: str, parameters: dict[str, Any], choice: Any = "required") -> AnswerConstraint:
    tool = Tool.model_validate({"type": "function", "function": {"name": "t", "parameters": parameters}})
    return make_grammar(AskedAnswer(None, [tool], choice, calls=ModelCalls(form_of(name), is_native=True)))


@pytest.mark.parametrize(
    "part", [{"type": 3}, {"type": [{}]}, {"minLength": "}/ x"}, {"maxLength": -1}], ids=str
)  # fmt: skip
@pytest.mark.parametrize("name", ["qwen xml", "gemma", "lfm", "deepseek xml"])
def test_what_is_no_schema_is_refused(name: str, part: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="not a JSON schema"):
        constrained(name, {"type": "object", "properties": {"p": {"type": "string", **part}}})


def test_definitions_that_are_repeated_too_often_are_not_held() -> None:
    large = {"type": "object", "properties": {f"a_long_name_{number}": {"type": "string"} for number in range(400)}}
    lists = {f"p{most}": {"type": "array", "items": {"$ref": "#/$defs/large"}, "maxItems": most} for most in range(30)}
    held = constrained("qwen xml", {"type": "object", "$defs": {"large": large}, "properties": lists})
    assert held.grammar is not None
    assert len(held.grammar) < MOST_OWN_CHARACTERS
    assert FREE_ARGUMENTS in held.notices


def _chain(word: str, times: int) -> dict[str, Any]:
    links = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * times} for n in range(14)}
    return {**links, "d14": {"type": "string"}}


SELF = {"$ref": "#/$defs/d0"}
UNION = [{"$ref": f"#/$defs/s{n}"} for n in range(250)]
HOSTILE = {
    "part of itself": (SELF, {"d0": {"type": "object", "allOf": [SELF]}}),
    "union of itself": (SELF, {"d0": {"anyOf": [SELF] * 10}}),
    "chain of unions": (SELF, _chain("anyOf", 4)),
    "chain of parts": (SELF, _chain("allOf", 4)),
    "wide union": (SELF, {"d0": {"anyOf": UNION}, **{f"s{n}": {"type": "string", "minLength": n} for n in range(250)}}),
}


@pytest.mark.parametrize("name", ["qwen xml", "gemma", "lfm", "deepseek xml"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_definitions_that_refer_to_each_other_cost_little(name: str, hostile: str) -> None:
    part, definitions = HOSTILE[hostile]
    arguments = {f"p{number}": part for number in range(1_000)}
    for schema in ({"allOf": [part]}, {"properties": {"p": part}}, {"properties": arguments}):
        began = time.process_time()
        assert constrained(name, {"type": "object", "$defs": definitions, **schema}).grammar is not None
        assert time.process_time() - began < 5  # it took longer than any request may


def test_a_form_without_tags_keeps_its_calls_however_long_the_schemas_are() -> None:
    for count in (10, 3000):
        properties = {f"a_long_name_{number}": {"type": "string"} for number in range(count)}
        held = constrained("llama", {"type": "object", "properties": properties}, "auto")
        assert held.plain == ("t",)
        assert held.grammar is not None
        assert "plain_0" in held.grammar
        assert len(held.grammar) < MOST_OWN_CHARACTERS
