"""A small engine, requests of all kinds, and their answers one by one."""

import functools
from collections.abc import Sequence

from surefoot.core import FinishReason, Request, SampleKey, SamplingParams
from surefoot.engine import Engine, Event
from surefoot.kv import KvGroup, KvLayout, KvManager
from surefoot.models import Model, load
from surefoot.ops import Backend
from surefoot.runner import Executor, Runner
from surefoot.scheduler import Scheduler, SchedulerConfig
from surefoot.weights import GgufFile
from tests.stories import stories_gguf

CONFIG = SchedulerConfig(max_context=256, max_running=4, max_chunk=64, max_step_tokens=64)


LAYOUT = KvLayout(16, (KvGroup(64),))


Answers = dict[SampleKey, tuple[list[int], list, FinishReason | None]]


@functools.cache
def backend(threads: int = 2) -> Backend:
    return Backend(threads=threads)


@functools.cache
def model() -> Model:
    return load(backend(), GgufFile(stories_gguf()))


def make_engine(config: SchedulerConfig = CONFIG, layout: KvLayout = LAYOUT, threads: int = 2) -> Engine:
    blocks = {group.window: group.num_blocks for group in layout.groups}
    runner = Runner(
        backend(threads), model(), config.max_context, blocks, config.max_chunk, block_size=layout.block_size
    )  # fmt: skip
    return Engine(lambda: Scheduler(config, KvManager(layout)), Executor(runner))


def requests() -> list[Request]:
    prompts = [(1, 403, 407, 261, 378), tuple(range(300, 420)), (1,), (1, 410, 300) * 9]
    every = [
        SamplingParams(temperature=0, max_tokens=20, logprobs=2),
        SamplingParams(seed=5, max_tokens=12, logprobs=1, n=3),
        SamplingParams(seed=6, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.5, max_tokens=30, logprobs=0),
        SamplingParams(seed=7, top_k=20, logit_bias={300: 3.0}, max_tokens=9),
        SamplingParams(seed=8, temperature=0.7, min_p=0.05, frequency_penalty=0.3, max_tokens=25, logprobs=3, n=2),
    ]
    return [Request(f"r{number}", prompts[number % 4], params) for number, params in enumerate(every)]


def run(engine: Engine, batch: list[Request]) -> Answers:
    for request in batch:
        engine.add(request)
    return finish(engine)


def finish(engine: Engine, events: Sequence[Event] = ()) -> Answers:
    """Runs until all requests have ended. events: of earlier steps."""
    all_events = list(events)
    while engine.has_work:
        all_events += engine.step()
    answers: Answers = {}
    for event in all_events:
        tokens, logprobs, _ = answers.get(event.key, ([], [], None))
        answers[event.key] = ([*tokens, *event.tokens], [*logprobs, *event.logprobs], event.reason)
    return answers


@functools.cache
def expected() -> Answers:
    """The answers of each request alone."""
    answers = {}
    for request in requests():
        answers |= run(make_engine(), [request])
    return answers
