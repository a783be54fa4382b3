"""Sessions of agents against a real server with a small model, and the figures beside a peer."""

import json
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from surefoot.bench.agent.replay import Turn
from surefoot.bench.agent.run import Played, agent_questions
from surefoot.bench.agent.session import MAX_NEW, Sizes, chat_body, make_session, messages_body
from surefoot.cli.bench import bench
from tests.smollm2 import find_file


@pytest.mark.parametrize(("form", "users", "turns"), [("messages", 2, 3), ("chat", 1, 2)])
def test_sessions_are_replayed_and_found_again_on_disk(form: str, users: int, turns: int) -> None:
    sizes = ["--quick", "--turns", str(turns), "--users", str(users)]
    command = ["agent", str(find_file()), "--json", "--form", form, *sizes]
    result = CliRunner().invoke(bench, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    (played,) = report["model"]["played"]
    asked, figures = played["turns"], report["figures"]
    assert [(turn["number"], turn["user"]) for turn in asked] == [
        (i, user) for i in range(turns) for user in range(users)
    ]
    assert all(0 < turn["new_tokens"] <= MAX_NEW for turn in asked)
    assert all(0 < turn["first_s"] <= turn["seconds"] for turn in asked)
    for before, after in zip(asked, asked[users:], strict=False):
        known = before["prompt_tokens"] + before["new_tokens"]
        assert before["prompt_tokens"] - 32 <= after["cached_tokens"] <= known < after["prompt_tokens"]
    for cold, again in zip(asked, played["restarted"], strict=False):
        assert cold["prompt_tokens"] - 32 <= again["cached_tokens"] < again["prompt_tokens"] == cold["prompt_tokens"]
    assert min(turn["cached_tokens"] for turn in asked[:users]) == 0, "of the user who came first"
    assert asked[0]["prompt_tokens"] == pytest.approx(1700, rel=0.2)
    assert asked[-1]["prompt_tokens"] == pytest.approx(3200, rel=0.2)
    assert figures[f"cached_tokens_{users}"] == sum(turn["cached_tokens"] for turn in asked)
    assert 0 < figures[f"turn_p50_s_{users}"] <= figures[f"turn_p95_s_{users}"]
    assert 0 < figures[f"restart_share_{users}"] < 1
    assert figures[f"turn_vs_llamacpp_{users}"] is None


def test_users_share_tools_and_rules_and_nothing_else() -> None:
    first, second, again = (make_session(user, Sizes(turns=4), len) for user in (0, 1, 0))
    assert first == again
    assert first.tools == second.tools
    assert first.system[1].partition("Your working")[0] == second.system[1].partition("Your working")[0]
    assert (first.system, first.task, first.reads[0].text) != (second.system, second.task, second.reads[0].text)
    for make_body, growth in ((messages_body, 2), (chat_body, 2)):
        bodies = [make_body(first, turn) for turn in range(4)]
        for before, after in pairwise(bodies):
            assert after["messages"][:-growth] == before["messages"]
            assert {**after, "messages": None} == {**before, "messages": None}


def test_figures_of_a_peer() -> None:
    def played(engine: str, *seconds: float, restarted: float = 0.5) -> Played:
        turns = tuple(Turn(0, number, each / 2, each, 100, 90, 60) for number, each in enumerate(seconds))
        return Played(engine, 1, turns, (Turn(0, 0, 0.1, restarted, 100, 96, 60),))

    ours, theirs = played("surefoot", 10.0, 2.0, 4.0), played("llamacpp", 20.0, 3.0, 4.0)
    figures = {question.name: question.figure() for question in agent_questions([ours, theirs], [1, 4], {})}
    assert figures["turn_vs_llamacpp_1"].samples == (2.0, 1.5, 1.0)
    assert figures["turn_vs_llamacpp_1"].met is True
    assert figures["first_vs_llamacpp_1"].samples == (2.0, 1.5, 1.0)
    assert figures["turn_vs_llamacpp_4"].value is None
    assert (figures["turn_p50_s_1"].value, figures["turn_p50_s_llamacpp_1"].value) == (4.0, 4.0)
    assert (figures["computed_tokens_1"].value, figures["cached_tokens_llamacpp_1"].value) == (30, 270)
    assert figures["restart_share_1"].value == 0.05
    assert figures["restart_share_1"].met is True
    assert figures["restart_first_share_1"].value == 0.02
