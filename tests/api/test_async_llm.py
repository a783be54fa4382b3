"""Many requests at once from an event loop, on a small real model."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from surefoot.api import LLM, SamplingParams
from surefoot.api import async_llm as module
from surefoot.api.async_llm import AsyncLLM, EngineFailed, SlowReader
from surefoot.core import Request
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S

PROMPTS = ["Once upon a time", "One day", "The dog"]


def request(llm: AsyncLLM, name: str, text: str = PROMPTS[0], **params: Any) -> Request:
    params = {"seed": 3, "max_tokens": 20, **params}
    return Request(
        name, tuple(llm.tokenizer.encode(text)), SamplingParams(**params), eos_token_ids=llm.tokenizer.ids.ends
    )


def run(test: Callable[[AsyncLLM], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async_llm = AsyncLLM(LLM(stories_gguf(), max_running=4))
        async_llm.start()
        try:
            await asyncio.wait_for(test(async_llm), PATIENCE_S)
        finally:
            await async_llm.stop()

    asyncio.run(whole())


def test_answers_are_those_of_llm() -> None:
    expected = LLM(stories_gguf()).generate(PROMPTS, SamplingParams(seed=3, max_tokens=20, n=2, logprobs=1))

    async def test(llm: AsyncLLM) -> None:
        requests = [request(llm, text, text, n=2, logprobs=1) for text in PROMPTS]
        streams = [await llm.submit([each], continues=True) for each in requests]
        outputs = [(await stream.outputs())[0] for stream in streams]
        assert [output.outputs for output in outputs] == [output.outputs for output in expected]
        together = await llm.submit([request(llm, f"t{text}", text, n=2) for text in PROMPTS], continues=True)
        texts = [""] * 6
        async for piece in together:
            texts[piece.index] += piece.text
        assert texts == [answer.text for output in expected for answer in output.outputs]

    run(test)


@pytest.mark.parametrize("single", [False, True])
def test_a_slow_reader_gets_the_same_text(single: bool) -> None:
    async def test(llm: AsyncLLM) -> None:
        whole = (await (await llm.submit([request(llm, "a")])).outputs())[0].outputs[0]
        stream = await llm.submit([request(llm, "b")], single=single)
        while llm.num_requests:  # all is there before the first piece is read
            await asyncio.sleep(0.01)
        pieces = [piece async for piece in stream]
        assert "".join(piece.text for piece in pieces) == whole.text
        assert sum((piece.token_ids for piece in pieces), ()) == whole.token_ids
        assert len(pieces) == (len(whole.token_ids) if single else 1)

    run(test)


def test_tokens_after_a_stop_string_do_not_count() -> None:
    async def test(llm: AsyncLLM) -> None:
        text = (await (await llm.submit([request(llm, "a", max_tokens=60)])).outputs())[0].text
        word = text.split()[4]
        stop = {"stop": (word,), "max_tokens": 60}
        outputs = [(await (await llm.submit([request(llm, f"s{n}", **stop)])).outputs())[0] for n in range(5)]
        assert {output.text for output in outputs} == {text[: text.index(word)]}
        assert len({output.usage.num_generated for output in outputs}) == 1
        assert outputs[0].outputs[0].stop_reason == word

    run(test)


def test_closing_ends_the_work() -> None:
    async def test(llm: AsyncLLM) -> None:
        stream = await llm.submit([request(llm, "a", max_tokens=450, ignore_eos=True)])
        await anext(stream)
        stream.close()
        assert llm.num_requests == 0
        while llm.engine.has_work:
            await asyncio.sleep(0.01)
        assert llm.engine.load().kv_use == 0

    run(test)


def test_refused_as_a_whole() -> None:
    async def test(llm: AsyncLLM) -> None:
        fits, too_long = request(llm, "a"), request(llm, "b", "word " * 2000)
        with pytest.raises(ValueError, match="context"):
            await llm.submit([fits, too_long])
        assert llm.num_requests == 0
        assert await (await llm.submit([fits])).outputs()

    run(test)


def test_requests_refused_together_leave_nothing() -> None:
    """Before any step: the ids are free again, and no request is left."""

    async def test(llm: AsyncLLM) -> None:
        several, too_long = request(llm, "a", n=3), request(llm, "b", "word " * 2000)

        def add() -> bool:
            llm._add_all([several, too_long], asyncio.Future(loop=llm._loop))
            return llm.engine.has_work

        assert not await llm.between_steps(add)
        llm.engine.planner.audit()
        assert await (await llm.submit([several])).outputs()

    run(test)


def test_a_duplicate_id_is_refused_and_the_first_request_continues() -> None:
    async def test(llm: AsyncLLM) -> None:
        stream = await llm.submit([request(llm, "a")])
        with pytest.raises(ValueError, match="give it another id"):
            await llm.submit([request(llm, "b"), request(llm, "a")])
        assert llm.num_requests == 1
        assert len((await stream.outputs())[0].outputs[0].token_ids) == 20

    run(test)


def test_a_stream_without_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNREAD_TOKENS", 30)

    async def test(llm: AsyncLLM) -> None:
        stream = await llm.submit([request(llm, "a", max_tokens=200, ignore_eos=True)])
        while llm.num_requests:
            await asyncio.sleep(0.01)
        with pytest.raises(SlowReader):
            async for _ in stream:
                pass

    run(test)


def test_a_failed_step_fails_only_its_requests() -> None:
    async def test(llm: AsyncLLM) -> None:
        engine, step = llm.engine, llm.engine.step
        engine.step = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        stream = await llm.submit([request(llm, "a")])
        with pytest.raises(EngineFailed):
            await stream.outputs()
        engine.step = step  # type: ignore[method-assign]
        assert llm.progress.num_failures >= 1
        assert await (await llm.submit([request(llm, "b")])).outputs()

    run(test)


def test_a_stuck_engine_is_not_alive() -> None:
    async def test(llm: AsyncLLM) -> None:
        assert llm.is_alive(0.0), "an idle one is"
        step, go_on = llm.engine.step, threading.Event()

        def stuck() -> Any:
            go_on.wait()
            return step()

        llm.engine.step = stuck  # type: ignore[method-assign]
        stream = await llm.submit([request(llm, "a", max_tokens=1)])
        while llm.is_alive(0.1):
            await asyncio.sleep(0.01)
        assert llm.is_alive(3600.0)
        go_on.set()
        await stream.outputs()

    run(test)
