"""What a step's result does to the samples of its plan."""

from surefoot.core import Chunk, Delta, FinishReason, Output, StepResult
from surefoot.scheduler.charges import Charges
from surefoot.scheduler.requests import Requests
from surefoot.scheduler.room import Room
from surefoot.scheduler.rows import Rows
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.step import Step, make


class Results:
    def __init__(self, requests: Requests, rows: Rows, room: Room, charges: Charges) -> None:
        self._requests = requests
        self._rows = rows
        self._room = room
        self._charges = charges

    def take(self, step: Step, result: StepResult) -> list[Delta]:
        """Advance everyone in the plan by what was computed and accepted."""
        deltas: list[Delta] = []
        outputs, failed, deferred = iter(result.outputs), result.failed, result.deferred
        for sample, chunk in zip(step.samples, step.chunks, strict=True):
            _, start, tokens, _, _, samples = chunk
            if failed and sample.key in failed:
                deltas += self._requests.end_all(sample.key.request, FinishReason.ERROR)
                for _ in samples:
                    next(outputs)
                continue
            if deferred and sample.key in deferred:
                for _ in samples:
                    next(outputs)
                continue
            if not samples:
                self._room.advance(sample, start + len(tokens))
                continue
            output = key, drawn, drafts = next(outputs)
            if key is not sample.key and key != sample.key:
                raise ValueError(f"the output of {key} where that of {sample.key} belongs")
            if start < sample.plain_until and len(drawn) == 1 and -1 < drawn[0] not in sample.stops:
                # _draw in short, for nearly every token there is: it fills no block and is not the last.
                sample.tokens.append(drawn[0])
                sample.holding.num_computed = start + 1
                sample.drafts = drafts
                deltas.append(make(Delta, (key, drawn, None, 0)))
            else:
                self._draw(sample, chunk, output, [next(outputs) for _ in samples[1:]], deltas)
        if next(outputs, None) is not None:
            raise ValueError("more outputs than the plan has samples")
        return deltas

    def _draw(self, sample: Sample, chunk: Chunk, output: Output, others: list[Output], deltas: list[Delta]) -> None:
        if sample.state is State.ENDED:
            return
        num_computed = chunk.start + len(chunk.tokens) - chunk.num_logits + len(output.tokens)
        kept, reason = sample.accept(output.tokens)
        self._room.advance(sample, num_computed)
        if sample.state is State.PREFILLING:
            self._rows.start_decoding(sample)
        self._charges.output(sample)
        for other in others:
            self._fork(sample, other, deltas)
        sample.drafts = output.drafts
        self._tell(sample, kept, reason, deltas)

    def _fork(self, parent: Sample, output: Output, deltas: list[Delta]) -> None:
        sample = self._requests.fork(parent, output.key.sample)
        kept, reason = sample.accept(output.tokens)
        self._charges.output(sample)
        self._tell(sample, kept, reason, deltas)

    def _tell(self, sample: Sample, kept: tuple[int, ...], reason: FinishReason | None, deltas: list[Delta]) -> None:
        deltas.append(Delta(sample.key, kept, reason, sample.num_cached if reason else 0))
        if reason:
            self._requests.end(sample)
