"""On a real server, a small grammar that never finishes delays no other request."""

import threading

import httpx
import pytest
from openai import APIError, OpenAI

from tests.server.process import Server
from tests.server.routes.chat import ask

AMBIGUOUS = {"type": "grammar", "grammar": 'start: e\ne: e e | "a" | "b" | e e e |'}
ENDS = {"0": -100, "2": -100}  # SmolLM2's: it would go on for as long as it may


def test_a_small_grammar_does_not_stall_all(server: Server, client: OpenAI) -> None:
    wanted = ask(client, seed=5, max_tokens=4, logprobs=True).choices[0].logprobs
    begun, ended, told = threading.Event(), threading.Event(), list[str]()

    def attack() -> None:
        more = {"response_format": AMBIGUOUS, "logit_bias": ENDS}
        try:
            for _ in ask(client, stream=True, seed=1, max_tokens=1500, extra_body=more):
                begun.set()
        except APIError as error:
            told.append(str(error))
        begun.set()
        ended.set()

    thread = threading.Thread(target=attack)
    thread.start()
    assert begun.wait(60)
    num_beside = 0
    while not ended.is_set():
        assert ask(client, seed=5, max_tokens=4, logprobs=True).choices[0].logprobs == wanted
        assert httpx.get(f"{server.root}/ready").status_code == 200
        num_beside += not ended.is_set()
    thread.join()
    assert num_beside >= 3, "others were answered while it ran"
    assert "simpler" in told[0]


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_grammar_costs_is_told(client: OpenAI, stream: bool) -> None:
    """Every letter a rule of its own: the count of work is reached at the first mask already, or soon after."""
    rules = "start: s\ns: s s | " + " | ".join(f'"{chr(97 + number)}"' for number in range(26))
    with pytest.raises(APIError, match="too ambiguous"):
        list(ask(client, stream=stream, extra_body={"response_format": {"type": "grammar", "grammar": rules}}))
