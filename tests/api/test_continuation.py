"""Streams that go on from tokens that their reader has: the same pieces, in the same order."""

import asyncio
import functools

import pytest

from surefoot.api import LLM, AsyncLLM, Piece, SamplingParams
from surefoot.api.answers import NotExact, SentToken, as_token_logprobs, begin_requests, logprobs_by_token, sent_tokens
from surefoot.core import Request
from surefoot.sampling import TokenLogprobs
from surefoot.sampling.grammar import json_grammar
from tests.stories import stories_gguf

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}}, "required": ["name"]}
PROMPT = "Once upon a time there was a"


@functools.cache
def llm() -> LLM:
    return LLM(stories_gguf(), max_running=8, max_context=256)


KINDS = {
    "greedy": {"temperature": 0},
    "sampled, three answers": {"n": 3, "temperature": 1.2, "frequency_penalty": 0.5, "logprobs": 2},
    "stop strings": {"stop": ("and", ". ", "he"), "n": 2, "logprobs": 0},
    "schema": {"grammar": json_grammar(SCHEMA), "temperature": 1.5, "n": 2, "max_tokens": 40},
    "least length": {"min_tokens": 6, "n": 2, "temperature": 2.0, "presence_penalty": 1.0},
}


def requests(params: dict, count: int = 1) -> list[Request]:
    made = SamplingParams(**{"seed": 5, "max_tokens": 12, **params})
    ends = llm().tokenizer.ids.ends
    prompts = [tuple(llm().tokenizer.encode(PROMPT + " b" * number)) for number in range(count)]
    return [Request(f"r{number}", prompt, made, eos_token_ids=ends) for number, prompt in enumerate(prompts)]


async def pieces_of(wanted: list[Request], *histories: list[SentToken]) -> list[list[Piece]]:
    """The pieces for each history. One engine after the other: a history must not depend on what is cached."""
    runs = []
    running = AsyncLLM(llm())
    running.start()
    try:
        for history in histories:
            stream = await running.submit(wanted, single=True, sent=history)
            runs.append([piece async for piece in stream])
    finally:
        await running.stop()  # also after an error: the next engine uses the same model
    return runs


def shown(pieces: list[Piece]) -> list[tuple]:
    """What a reader gets. Times are another run's, and so is an empty piece that may carry them."""
    facts = [(piece.index, piece.text, piece.token_ids, piece.logprobs, piece.finish_reason) for piece in pieces]
    return [fact for fact in facts if any(fact[1:])]


def by_answer(pieces: list[Piece]) -> dict[int, list[tuple]]:
    answers: dict[int, list[tuple]] = {}
    for piece in shown(pieces):
        answers.setdefault(piece[0], []).append(piece)
    return answers


@pytest.mark.parametrize("num_prompts", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_every_cut(kind: str, num_prompts: int) -> None:
    wanted = requests(KINDS[kind], num_prompts)
    (whole,) = asyncio.run(pieces_of(wanted, []))
    sent = [token for piece in whole for token in sent_tokens(piece)]
    assert len(sent) == len([piece for piece in whole if piece.token_ids]) > 3
    cuts = range(len(sent) + 1)
    for cut, again in zip(cuts, asyncio.run(pieces_of(wanted, *(sent[:cut] for cut in cuts))), strict=True):
        assert shown(again)[:cut] == shown(whole)[:cut]
        assert by_answer(again) == by_answer(whole), cut
        assert [output.outputs for output in outputs(again)] == [output.outputs for output in outputs(whole)]


def outputs(pieces: list[Piece]) -> list:
    return sorted((piece.output for piece in pieces if piece.output), key=lambda output: output.request_id)


def test_another_token_is_noticed() -> None:
    """The last token is sampled again: a machine that computes something else is found out."""
    wanted = requests({"temperature": 0})
    (whole,) = asyncio.run(pieces_of(wanted, []))
    sent = [token for piece in whole for token in sent_tokens(piece)][:4]
    wrong = [*sent[:3], sent[3]._replace(token=sent[3].token ^ 1)]
    with pytest.raises(NotExact, match="sampled at its place"):
        asyncio.run(pieces_of(wanted, wrong))


def test_tokens_after_the_end_are_noticed() -> None:
    wanted = requests({"temperature": 0, "max_tokens": 4})
    (whole,) = asyncio.run(pieces_of(wanted, []))
    sent = [token for piece in whole for token in sent_tokens(piece)]
    with pytest.raises(ValueError, match="already has all of its"):
        asyncio.run(pieces_of(wanted, [*sent, sent[0]]))


def test_an_answer_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no answer 1"):
        begin_requests(requests({}), [SentToken(1, 5)])


def test_the_first_token_alone_is_sampled_again() -> None:
    (request,) = begin_requests(requests({"n": 2}), [SentToken(0, 5), SentToken(1, 6)])
    assert request.begun == ()
    (request,) = begin_requests(requests({"n": 2}), [SentToken(0, 5), SentToken(1, 6), SentToken(0, 7)])
    assert request.begun == ((5,), ())


def test_logprobs_there_and_back() -> None:
    for logprobs in (
        TokenLogprobs(5, -0.25, ((9, -0.125), (5, -0.25))),
        TokenLogprobs(7, -3.5, ((9, -0.125), (5, -0.25))),
        TokenLogprobs(7, -3.5),
    ):
        assert as_token_logprobs(logprobs_by_token(llm().tokenizer, logprobs)) == logprobs
