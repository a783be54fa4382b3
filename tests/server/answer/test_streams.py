"""Streams that break off: the work ends, and a client can go on where it was."""

import json
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.server.answer.streams import events, joined, left_undone
from tests.server.process import Server
from tests.server.routes.chat import ASK

LONG = {**ASK, "max_tokens": 1500, "ignore_eos": True, "stream": True, "temperature": 1.0}


def test_gone_client_ends_the_request(server: Server) -> None:
    with left_undone(server, "vllm:generation_tokens_total", LONG["max_tokens"]):
        assert len(events(server, LONG, most=3)) == 3


def test_gone_client_ends_a_prompt_in_the_making(server: Server) -> None:
    """Of many prompts, so that the client is sure to go before they are read."""
    body = {"model": "small", "prompt": [f"{number} " + "word " * 1800 for number in range(20)], "max_tokens": 1}
    with left_undone(server, "vllm:iteration_tokens_total_sum", 20 * 1800), pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/completions", json=body, timeout=httpx.Timeout(300, read=0.15))


def test_client_can_close_its_stream(client: OpenAI, server: Server) -> None:
    body = {**LONG, "extra_body": {"ignore_eos": True}}
    del body["ignore_eos"]
    with left_undone(server, "vllm:generation_tokens_total", LONG["max_tokens"]):
        stream = client.chat.completions.create(**body)
        for _ in range(3):
            next(stream)
        stream.close()


@pytest.mark.parametrize("more", [{"seed": 4}, {"n": 3}, {"logprobs": True, "stop": ["e"]}], ids=str)
def test_resumed_stream_is_the_rest(server: Server, more: dict[str, Any]) -> None:
    """Also without a seed in the request: the id has the one that was drawn."""
    body = {**ASK, **more, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 16}
    whole = events(server, body)
    for place in {1, len(whole) // 2, len(whole) - 4, len(whole) - 2}:
        if more.get("n") and place < len(whole) - 2:
            continue  # the order among answers may differ: compared below
        rest = events(server, body, last=whole[place][0])
        assert joined(rest) == joined(whole[place + 1 :])


def test_resumed_stream_of_several_answers(server: Server) -> None:
    body = {**ASK, "n": 3, "stream": True, "max_tokens": 16, "seed": 4}  # a seed: unseeded, an answer may end at once
    whole = events(server, body)
    rest = events(server, body, last=whole[len(whole) // 2][0])
    assert _texts(whole[: len(whole) // 2 + 1] + rest) == _texts(whole)
    assert all(len(text) > 10 for text in _texts(whole))


def _texts(found: list[tuple[str, str]]) -> list[str]:
    texts = [""] * 3
    for _, data in found:
        for choice in json.loads(data)["choices"] if data != "[DONE]" else []:
            texts[choice["index"]] += choice["delta"].get("content", "")
    return texts


def test_mark_of_another_request_is_refused(server: Server) -> None:
    body = {**ASK, "stream": True, "max_tokens": 3, "seed": 1}
    mark = events(server, body)[1][0]
    for wrong, last in [({**body, "seed": 2}, mark), (body, mark + "7-7"), (body, "nonsense"), (body, "sf1." * 9999)]:
        headers = {"Last-Event-ID": last}
        reply = httpx.post(f"{server.url}/chat/completions", json=wrong, headers=headers)
        assert reply.status_code in (400, 431), reply.text
