"""Any sequence of operations keeps the scheduler consistent, and each request gets the tokens it would get alone."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from surefoot.core import FinishReason, Request, SampleKey, SamplingParams, ServiceClass
from surefoot.kv import KvGroup, KvLayout, KvManager, StateLayout
from surefoot.scheduler import RequestRefused, Scheduler, SchedulerConfig
from tests.scheduler.fake_runner import VOCAB, FakeRunner, Loop, reference_output

# Small enough that requests preempt each other.
LAYOUTS = [
    KvLayout(2, (KvGroup(24),)),
    KvLayout(4, (KvGroup(12),)),
    KvLayout(2, (KvGroup(30), KvGroup(20, window=3))),
    KvLayout(4, (KvGroup(14, window=6),)),
    KvLayout(2, (KvGroup(400),)),
    KvLayout(2, (KvGroup(24),), StateLayout(67, 64, 4, tail_tokens=4)),
    KvLayout(2, (KvGroup(400),), StateLayout(80, 64, 4, tail_tokens=4)),
    KvLayout(2, (KvGroup(30), KvGroup(20, window=3)), StateLayout(70, 64, 2)),
]
COMPLETE = (FinishReason.STOP, FinishReason.LENGTH)


@st.composite
def requests(draw: st.DrawFn, number: int) -> Request:
    prompt = tuple(draw(st.lists(st.integers(0, 1), min_size=1, max_size=16)))
    stops = draw(st.sampled_from([(), (0,)]))
    params = SamplingParams(n=draw(st.integers(1, 3)), max_tokens=draw(st.integers(1, 14)), stop_token_ids=stops)
    return Request(
        f"r{number}", prompt, params,
        user=draw(st.sampled_from("uvw")), priority=draw(st.integers(-1, 1)),
        service=draw(st.sampled_from(ServiceClass)), namespace=draw(st.sampled_from(["", "a"])),
        num_public_tokens=draw(st.integers(0, len(prompt))),
        deadline=draw(st.one_of(st.none(), st.floats(0, 2))),
    )  # fmt: skip


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        layout=st.sampled_from(LAYOUTS), caching=st.booleans(), max_chunk=st.sampled_from([1, 3, 8, 64]),
        max_running=st.sampled_from([3, 6, 32]), drafts=st.integers(0, 3),
    )  # fmt: skip
    def start(self, layout: KvLayout, caching: bool, max_chunk: int, max_running: int, drafts: int) -> None:
        config = SchedulerConfig(
            max_context=30, max_running=max_running, max_chunk=max_chunk, min_chunk=2, first_chunk=8, headroom_tokens=1,
            gap_ms=30, slack_tokens=8,
        )  # fmt: skip
        scheduler = Scheduler(config, KvManager(layout, caching))
        self.loop = Loop(scheduler, FakeRunner(layout, num_drafts=lambda text: len(text) % (drafts + 1)), audit=True)
        self.requests: dict[str, Request] = {}
        self.stopped: set[SampleKey] = set()

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        request = data.draw(requests(len(self.requests)))
        scheduler, layout = self.loop.scheduler, self.loop.scheduler.kv.layout
        try:
            scheduler.add(request)
        except RequestRefused:
            needed = scheduler.price(request)
            too_large = any(blocks > group.num_blocks for blocks, group in zip(needed, layout.groups, strict=True))
            assert too_large or request.params.n > scheduler.config.max_running
            return
        self.requests[request.id] = request
        scheduler.audit()

    @rule(times=st.integers(1, 6), stopped=st.sampled_from([False, False, False, True]), defer=st.integers(0, 3))
    def step(self, times: int, stopped: bool, defer: int) -> None:
        """Sometimes all chunks or the first `defer` chunks of a step sample nothing."""
        for number in range(times):
            self.loop.step(stopped=stopped and number == 0, defer=defer if number == 0 else 0)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.requests)))
        self.loop.scheduler.cancel(name)
        self.loop.step()
        assert name not in self.loop.scheduler._requests

    @precondition(lambda self: self.loop.runner.rows)
    @rule(data=st.data(), limit=st.integers(1, 4))
    def preempt(self, data: st.DataObject, limit: int) -> None:
        keys = data.draw(st.lists(st.sampled_from(list(self.loop.runner.rows)), min_size=1, max_size=limit))
        for key in keys:
            self.loop.scheduler.preempt(key)
        self.loop.scheduler.audit()

    @precondition(lambda self: self.loop.runner.rows)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """As after a stop string, which ends a sample after its first token at the earliest."""
        key = data.draw(st.sampled_from(list(self.loop.runner.rows)))
        if key in self.loop.tokens:
            self.loop.scheduler.finish(key)
            self.stopped.add(key)
            self.loop.scheduler.audit()

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        self.loop.drain(3000)
        self.loop.step()
        assert not self.loop.runner.rows, "every row is freed"
        for pool in self.loop.scheduler.kv.pools:
            assert pool.num_available == pool.num_blocks
        for request in self.requests.values():
            for sample in range(request.params.n):
                self.check(request, SampleKey(request.id, sample))

    def check(self, request: Request, key: SampleKey) -> None:
        expected, got = reference_output(request, key.sample), self.loop.tokens.get(key, ())
        assert got == expected[: len(got)]
        if key in self.stopped:
            return
        delta = self.loop.ended[key]
        assert delta.num_cached < len(request.prompt)
        assert delta.reason not in COMPLETE or got == expected
        if delta.reason is FinishReason.STOP:
            assert got[-1] in request.stop_ids
        if delta.reason is FinishReason.LENGTH:
            assert len(got) == request.params.max_tokens
        assert max(got, default=0) < VOCAB


SchedulerMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestScheduler = SchedulerMachine.TestCase
