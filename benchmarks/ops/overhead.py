"""Cases of the overhead of calls from Python: a small operation and a decode step, call by call and replayed."""

from collections.abc import Iterator

import numpy as np

from benchmarks.ops.layer import DecodeStep
from benchmarks.ops.settings import OpsSettings
from surefoot.bench.harness.timing import Case, timed
from surefoot.ops import Backend, Program, empty_activations, quantise

CALLS = 200
STEP_FORMAT = "w4"  # the fewest bytes, so that calls are the largest share of the step


def overhead_cases(backend: Backend, settings: OpsSettings) -> Iterator[Case]:
    yield from _small_calls(backend)
    for model in settings.step_models:
        step = DecodeStep(backend, model, STEP_FORMAT, settings.step_context)
        step.run()
        program = step.record()
        for way, body in (("per op", step.run), ("replayed", program.run)):
            labels: dict[str, str | int] = {"model": model.name, "way": way, "calls": len(program)}
            yield Case(f"step/{model.name}/{way}", "step", timed(body), labels=labels)
    yield _replay_call(backend, step)


def _small_calls(backend: Backend) -> Iterator[Case]:
    """Cases of one operation on a short row, called from Python and inside a recorded program."""
    x = np.ones((1, 64), np.float32)
    out = empty_activations(1, 64)

    def call_all() -> None:
        for _ in range(CALLS):
            quantise(backend, x, out=out)

    with backend.record() as program:
        call_all()
    for way, body in (("per op", call_all), ("replayed op", program.run)):
        yield Case(f"call/{way}", "call", timed(body), CALLS, labels={"way": way})


def _replay_call(backend: Backend, step: DecodeStep) -> Case:
    """A case of Python's part in a replayed step: writing the inputs, and one native call (of an empty program)."""
    empty = Program(backend)

    def body() -> None:
        for _ in range(CALLS):
            step.prepare()
            empty.run()

    return Case("call/replay", "call", timed(body), CALLS, labels={"way": "replay"})
