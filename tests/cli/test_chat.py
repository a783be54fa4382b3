import time

import pytest

from tests.cli.process import Terminal, run
from tests.smollm2 import find_file
from tests.stories import stories_gguf

NOTICES = ("Forgotten.", "The system message is set.", "There is no system message now.")


def test_a_piped_conversation() -> None:
    lines = [
        "Once upon \\",
        "a time",
        "/stats",
        "/clear",
        "Once upon \\",
        "a time",
        "/help",
        "/nonsense",
        "",
        "/quit",
        "no",
    ]
    done = run("chat", stories_gguf(), "-t", "0", "-n", "12", text="\n".join(lines))
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0].startswith(", there was a little girl")
    assert "tokens/s" in said[1]
    assert said[2:4] == ["Forgotten.", said[0]]
    assert "/system" in done.stdout
    assert "There is no command /nonsense" in said[-1]


def test_history_and_system_message_reach_the_model() -> None:
    """Other words before make another answer; forgetting them makes the first one again."""
    lines = [
        "They",
        "/clear",
        "Tom has a big red dog.",
        "They",
        "/clear",
        "They",
        "/system Sue sings.",
        "/clear",
        "They",
    ]
    done = run("chat", stories_gguf(), "-t", "0", "-n", "12", text="\n".join([*lines, "/system", "/clear", "They"]))
    answers = [line for line in done.stdout.splitlines() if line not in NOTICES]
    first, _, after_another, again, with_system, without = answers
    assert first == again == without
    assert len({first, after_another, with_system}) == 3


def test_set() -> None:
    lines = ["/set", "/set max_tokens 4", "/set stop there", "Once upon a time", "/set stop none", "Once upon a time",
             "/set stop é\\n", "/set temperature hot", "/set temperature -3", "/set n 3", "/set seed none",
             "/set"]  # fmt: skip
    done = run("chat", stories_gguf(), "-t", "0", text="\n".join(lines))
    said = done.stdout.splitlines()
    assert "temperature 0.0" in said
    assert "max_tokens is 4 now." in said
    assert ", " in said
    assert ", there was a" in said
    assert "stop is ('é\\n',) now." in said
    assert "temperature takes a number, not 'hot'" in said
    assert "temperature must lie between 0.0 and 100.0, not at -3.0" in said
    assert any(line.startswith("There is no parameter 'n' to set") for line in said)
    assert said[-1] == "max_tokens 4"
    assert "seed None" in said


def test_a_conversation_that_grows_too_long_says_so_and_goes_on() -> None:
    done = run("chat", stories_gguf(), "-t", "0", "-n", "4", text="\n".join(["a " * 1000, "Once upon a time"]))
    assert done.returncode == 0
    assert "shorten the prompt" in done.stdout
    assert "/clear begins anew" in done.stdout
    assert done.stdout.splitlines()[-1] == ", there was a"


@pytest.mark.reference
def test_ctrl_c_stops_the_answer_and_not_the_program() -> None:
    with Terminal("chat", find_file(), "--temperature", "0") as terminal:
        terminal.wait_for("/help for commands")
        terminal.wait_for("> ")
        terminal.type("Write a long story about a ship and its crew.")
        terminal.wait_for("\n")  # its own echo
        terminal.wait_for("the")
        terminal.interrupt()
        terminal.wait_for("(stopped)")
        terminal.wait_for("> ")
        time.sleep(1)  # readline overlooks a Ctrl-C between its writing of the prompt and its waiting for keys
        terminal.interrupt()  # at the prompt: nothing but a new one
        terminal.wait_for("> ")
        terminal.type("/clear")
        terminal.wait_for("Forgotten.")
        terminal.type("What is the capital of France?")
        terminal.wait_for("Paris")
        terminal.wait_for("of the bandwidth limit")
        terminal.type("/quit")
        assert terminal.leave() == 0
