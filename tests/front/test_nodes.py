"""An engine on each NUMA node behind one address. The nodes are made up: of one processor each."""

import os
import sys
from collections.abc import Iterator

import pytest
from openai import OpenAI

from surefoot.front.config import FrontConfig, ModelEntry, check_names, on_each_node
from surefoot.front.metrics import merge
from surefoot.front.model_process import ProcessLauncher
from surefoot.front.pool import STAY, ModelPool
from surefoot.front.residency import LoadModel, Residency
from surefoot.front.resident import ModelTraits
from surefoot.front.routing import AskedFor
from surefoot.machine import NodeShare
from surefoot.server.metrics import Metrics
from tests.front.many import children_of
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import wait_for

CPUS = sorted(os.sched_getaffinity(0))
SHARES = tuple(NodeShare(node, (CPUS[node % len(CPUS)],), 1) for node in (0, 1))
COPIES = on_each_node(ModelEntry("small", "x", aliases=("gpt",)), SHARES)
ON_TWO_NODES = f"""
from surefoot.cli import serve
from surefoot.cli.main import app
from surefoot.machine import NodeShare, Placement
serve.choose_placement = lambda threads: Placement({SHARES!r})
app()
"""


def test_copies_have_one_name_and_a_process_each() -> None:
    assert [(copy.names, copy.key) for copy in COPIES] == [(("small", "gpt"), "small"), (("small", "gpt"), "small (2)")]
    check_names(FrontConfig(COPIES))


def pool_of(*entries: ModelEntry) -> ModelPool:
    """All are loaded, as far as the policy knows."""
    policy = Residency([ModelTraits(entry.key, 1, 1.0, is_pinned=True) for entry in entries], 10, 30.0)
    for action in policy.decide(0.0):
        assert isinstance(action, LoadModel)
        policy.loaded(action.name, 0.0)
    models = {entry.key: entry for entry in entries}
    pool = ModelPool(models, policy, ProcessLauncher(None, (), print), 2, print)  # type: ignore[arg-type]
    pool.processes.update(dict.fromkeys(models))  # type: ignore[arg-type]
    return pool


def test_a_conversation_stays_with_its_copy_unless_that_has_far_more_to_do() -> None:
    pool = pool_of(*COPIES, ModelEntry("other", "y"))
    assert [pool.choose_copy("small", beginning) for beginning in (0, 1, 2)] == ["small", "small (2)", "small"]
    assert pool.choose_copy("other", 1) == "other"
    for _ in range(STAY):
        assert pool.choose_copy("small", 0) == "small"
        pool.policy.ask("small", 1.0, "user")
    assert pool.choose_copy("small", 0) == "small"
    pool.policy.ask("small", 1.0, "user")
    assert pool.choose_copy("small", 0) == "small (2)"


def test_a_copy_that_is_gone_is_not_asked() -> None:
    pool = pool_of(*COPIES)
    del pool.processes["small (2)"]
    assert pool.choose_copy("small", 1) == "small"


def test_requests_of_a_conversation_have_the_same_beginning() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    more = [*turns, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"}]
    other = [turns[0], {"role": "user", "content": "Hi!"}]
    first, second, third = (AskedFor.of({"messages": messages}, 0).beginning for messages in (turns, more, other))
    assert first == second != third
    text = "Once upon a time " * 30
    assert AskedFor.of({"prompt": text}, 0).beginning == AskedFor.of({"prompt": text + "there"}, 0).beginning
    assert AskedFor.of({"prompt": [1, 2]}, 0).beginning != AskedFor.of({"input": "x"}, 0).beginning


def test_figures_of_copies_are_added_up() -> None:
    one, two = Metrics("small"), Metrics("small")
    for metrics, count in ((one, 1), (two, 2)):
        for _ in range(count):
            metrics.refuse(429)
    lines = [line for line in merge([one.text().decode(), two.text().decode()]).decode().splitlines() if "429" in line]
    assert [line.rpartition(" ")[2] for line in lines if "_total" in line] == ["3.0"]


@pytest.fixture(scope="module")
def both() -> Iterator[Server]:
    made = Server(
        stories_gguf(), "--nodes", "each", "--max-context", "256", "--kv-memory", "16MB",
        command=(sys.executable, "-c", ON_TWO_NODES),
    )  # fmt: skip
    yield made
    made.stop()


def client_of(server: Server) -> OpenAI:
    return OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)


def test_each_node_has_an_engine_on_its_processors(both: Server) -> None:
    wait_for(lambda: both.metric("surefoot:model_loads_total") == 2)
    allowed = {tuple(sorted(os.sched_getaffinity(pid))) for pid in children_of(both.process.pid)}
    assert allowed == {share.cpus for share in SHARES}
    assert both.log.count("on node") == 2


def test_both_give_the_same_answer_under_one_name(both: Server) -> None:
    assert [model.id for model in client_of(both).models.list()] == ["small"]
    prompts = ["Once upon a time", "One day", "There was a", "Tom and"]
    assert len({AskedFor.of({"prompt": prompt}, 0).beginning % 2 for prompt in prompts}) == 2
    alone = Server(stories_gguf(), "--max-context", "256", "--threads", "1")
    try:
        for prompt in prompts:
            texts = [
                client_of(server).completions.create(model="small", prompt=prompt, max_tokens=8, seed=1).choices[0].text
                for server in (both, alone)
            ]
            assert texts[0] == texts[1]
    finally:
        alone.stop()
