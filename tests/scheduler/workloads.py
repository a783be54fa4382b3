"""Requests and schedulers for the tests."""

from zlib import crc32

from surefoot.core import Request, SampleKey, SamplingParams, ServiceClass
from surefoot.kv import KvGroup, KvLayout, KvManager
from surefoot.scheduler import Scheduler, SchedulerConfig
from tests.scheduler.fake_runner import FakeRunner, Loop

BLOCK = 16


def request(
    name: str, num_prompt: int, num_new: int, *, text: int | None = None, n: int = 1, user: str = "", priority: int = 0,
    service: ServiceClass = ServiceClass.INTERACTIVE, deadline: float | None = None, namespace: str = "",
    weight: float | None = None, answer_s: float | None = None,
) -> Request:  # fmt: skip
    """Prompts differ from the first token on, unless they have the same `text`."""
    first = crc32(name.encode()) if text is None else text
    prompt = (first, *range(num_prompt - 1))
    params = SamplingParams(max_tokens=num_new, n=n)
    return Request(
        name, prompt, params, user, priority, service, namespace, deadline=deadline, answer_s=answer_s, weight=weight
    )


def make_loop(
    config: SchedulerConfig, num_blocks: int = 4096, *, base_ms: float = 10.0, token_ms: float = 1.0,
    caching: bool = True, with_memory: bool = False,
) -> Loop:  # fmt: skip
    layout = KvLayout(BLOCK, (KvGroup(num_blocks),))
    runner = FakeRunner(layout, lambda num_tokens: base_ms + token_ms * num_tokens, with_memory=with_memory)
    return Loop(Scheduler(config, KvManager(layout, caching)), runner)


def key(name: str, sample: int = 0) -> SampleKey:
    return SampleKey(name, sample)
