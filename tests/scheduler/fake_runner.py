"""A runner without a model: the next token is a hash of the text. It checks every plan against simulated memory."""

from collections.abc import Callable
from zlib import crc32

from surefoot.core import Chunk, Delta, Output, Request, SampleKey, StepPlan, StepResult
from surefoot.kv import KvLayout
from surefoot.scheduler import Scheduler
from tests.kv.memory import Memory

VOCAB = 5


def next_token(text: list[int], sample: int) -> int:
    return crc32(bytes(token % 256 for token in text) + bytes([sample])) % VOCAB


def reference_output(request: Request, sample: int) -> tuple[int, ...]:
    """The tokens that the sample must get, whatever else runs."""
    text, new = list(request.prompt), list[int]()
    while len(new) < (request.params.max_tokens or 0):
        new.append(next_token(text + new, sample))
        if new[-1] in request.stop_ids:
            break
    return tuple(new)


class FakeRunner:
    """elapsed_ms: duration of a step, by its number of tokens. num_drafts: drafts to propose, half of them wrong."""

    def __init__(
        self,
        layout: KvLayout,
        elapsed_ms: Callable[[int], float] = lambda num_tokens: 10.0 + num_tokens,
        num_drafts: Callable[[list[int]], int] = lambda text: 0,
        with_memory: bool = True,
    ) -> None:
        self.layout = layout
        self.memory = Memory(layout) if with_memory else None
        self.rows: dict[SampleKey, list[int]] = {}
        self.elapsed_ms = elapsed_ms
        self.num_drafts = num_drafts

    def execute(self, plan: StepPlan, stopped: bool = False, defer: int = 0) -> StepResult:
        """stopped: caches are written, but nothing is sampled. defer: the first `defer` chunks do not sample."""
        for key in plan.ends:
            del self.rows[key]
        for key, request, tokens in plan.starts:
            assert key not in self.rows
            assert tokens[: len(request.prompt)] == request.prompt
            self.rows[key] = list(tokens)
        assert len({chunk.key for chunk in plan.chunks}) == len(plan.chunks), "one chunk per sample"
        if self.memory is not None:
            self._write(self.memory, plan)
        if stopped:
            return StepResult((), self.elapsed_ms(plan.num_tokens), stopped=True)
        deferred = {chunk.key for chunk in plan.chunks[:defer] if chunk.samples}
        outputs = [output for chunk in plan.chunks for output in self._sample(chunk, chunk.key in deferred)]
        return StepResult(outputs, self.elapsed_ms(plan.num_tokens), deferred=deferred)

    def _text(self, chunk: Chunk) -> list[int]:
        """The row's text, followed by the chunk's drafts."""
        text = self.rows[chunk.key]
        num_drafts = max(chunk.num_logits - 1, 0)
        known = chunk.tokens[: len(chunk.tokens) - num_drafts]
        assert text[chunk.start : chunk.start + len(known)] == list(known)
        assert not chunk.num_logits or chunk.start + len(known) == len(text)
        return text[: chunk.start + len(known)] + list(chunk.tokens[len(known) :])

    def _write(self, memory: Memory, plan: StepPlan) -> None:
        memory.copy(list(plan.copies))
        texts = [self._text(chunk) for chunk in plan.chunks]
        for chunk, text in zip(plan.chunks, texts, strict=True):
            memory.check(chunk.tables, text, chunk.start)
        for chunk, text in zip(plan.chunks, texts, strict=True):
            memory.write(chunk.tables, text, chunk.start, chunk.start + len(chunk.tokens))
        for chunk, text in zip(plan.chunks, texts, strict=True):
            memory.check(chunk.tables, text, chunk.start + len(chunk.tokens))
        if self.layout.states is not None:
            loads = {chunk.states.load for chunk in plan.chunks}
            saves = [slot for chunk in plan.chunks for _, slot in chunk.states.saves]
            assert len(set(saves)) == len(saves), "two rows save to one slot"
            assert not loads & set(saves), "chunks run side by side: what one reads, another must not write"
            for chunk, text in zip(plan.chunks, texts, strict=True):
                memory.write_states(chunk.states, text, chunk.start)

    def _sample(self, chunk: Chunk, is_deferred: bool) -> list[Output]:
        if is_deferred:
            return [Output(SampleKey(chunk.key.request, sample), (-1,)) for sample in chunk.samples]
        outputs = [self._output(chunk, sample) for sample in chunk.samples]
        for output in outputs:
            if output.key == chunk.key:
                self.rows[chunk.key] += output.tokens
        return outputs

    def _output(self, chunk: Chunk, sample: int) -> Output:
        text, sampled = list(self.rows[chunk.key]), list[int]()
        drafts = list(chunk.tokens[len(chunk.tokens) - chunk.num_logits + 1 :])
        while True:
            sampled.append(next_token(text + sampled, sample))
            if not drafts or drafts.pop(0) != sampled[-1]:
                break
        return Output(SampleKey(chunk.key.request, sample), tuple(sampled), self._propose(text + sampled, sample))

    def _propose(self, text: list[int], sample: int) -> tuple[int, ...]:
        drafts = list[int]()
        for number in range(self.num_drafts(text)):
            right = next_token(text + drafts, sample)
            drafts.append((right + (number + len(text)) % 2) % VOCAB)
        return tuple(drafts)


class Loop:
    """The engine's loop (schedule, execute, commit), with the samples' outputs."""

    def __init__(self, scheduler: Scheduler, runner: FakeRunner, audit: bool = False) -> None:
        self.scheduler, self.runner, self.audit = scheduler, runner, audit
        self.tokens: dict[SampleKey, tuple[int, ...]] = {}
        self.ended: dict[SampleKey, Delta] = {}
        self.first_step: dict[SampleKey, int] = {}
        self.num_steps = 0
        self.now = 0.0

    def step(self, stopped: bool = False, defer: int = 0) -> StepPlan:
        plan = self.scheduler.schedule(self.now)
        self.take(list(plan.dropped))
        self._audit()
        self.num_steps += 1
        result = self.runner.execute(plan, stopped, defer)
        if plan.chunks:
            self.take(self.scheduler.commit(result))
            self.now += result.elapsed_ms / 1000
        self._audit()
        return plan

    def _audit(self) -> None:
        if self.audit:
            self.scheduler.audit() if self.scheduler._step is None else self.scheduler.kv.audit()

    def take(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            assert delta.key not in self.ended, "nothing comes after the end"
            self.tokens[delta.key] = self.tokens.get(delta.key, ()) + delta.tokens
            self.first_step.setdefault(delta.key, self.num_steps)
            if delta.reason:
                self.ended[delta.key] = delta

    def drain(self, max_steps: int) -> None:
        for _ in range(max_steps):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError(f"not done after {max_steps} steps")
