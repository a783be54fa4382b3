"""The figures of `surefoot bench model`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from surefoot.bench.harness.figures import Measurements, MissingError, Question, Target, median, select
from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK, Label, ratios, shares_of_limit

LONG_PREFILL = 8000  # tokens of the prompt that the figures call 8k: what fits into a context of 8,192
BATCH = 32  # requests that decode together
LLAMACPP_BOUNDS = {"amx": 3.0, "avx512": 1.5, "avxvnni": 1.5}  # wanted of prompts, over llama.cpp, by variant
USUAL_BOUND = 1.3


def model_questions(
    measurements: Measurements,
    native_shares: Sequence[float],
    absent: Mapping[str, str],
    variant: str,
    file_share: float | None,
) -> Iterator[Question]:
    """native_shares: share of native code in the time of each decode sample. file_share: the file's bytes over ours."""

    def decode() -> list[float]:
        return shares_of_limit(select(measurements, "decode"), BANDWIDTH)

    def prefill(tokens: int) -> list[float]:
        return shares_of_limit(select(measurements, "prefill", tokens=tokens), INT8_PEAK)

    def against(kind: str, **labels: Label) -> list[float]:
        if reason := absent.get("llama.cpp"):
            raise MissingError(reason)
        theirs, ours = (select(measurements, kind, engine, **labels) for engine in ("llama.cpp", "surefoot"))
        return ratios(theirs, ours)

    def batch_step_ms() -> float:
        (measurement,) = select(measurements, "batch", requests=BATCH)
        return 1000 * median(measurement.seconds)

    def overhead() -> float:
        return 1 - median(native_shares[1:])

    yield Question("decode_of_bandwidth", "decode, 1 user: of bandwidth", Target(0.80), decode)
    yield _by_file(decode, file_share)
    for tokens in (512, 2048):
        meaning = f"prefill of {tokens:,} tokens: of int8 peak"
        yield Question(f"prefill{tokens}_of_peak", meaning, Target(0.40), partial(prefill, tokens))
    yield Question("decode_vs_llamacpp", "decode: over llama.cpp", Target(1.0), lambda: against("decode"))
    usual = LLAMACPP_BOUNDS.get(variant, USUAL_BOUND)
    for name, tokens, bound in (("512", 512, usual), ("2048", 2048, usual), ("8k", LONG_PREFILL, 2.0)):
        answer = partial(against, "prefill", tokens=tokens)
        yield Question(
            f"prefill{name}_vs_llamacpp", f"prefill of {tokens:,} tokens: over llama.cpp", Target(bound), answer
        )
    yield Question(f"decode{BATCH}_step_ms", f"a step that decodes {BATCH}: ms", None, batch_step_ms)
    limit = Target(0.05, at_least=False)
    yield Question("python_overhead_share", "time of a decode step outside of native code", limit, overhead)


def _by_file(decode: Callable[[], list[float]], file_share: float | None) -> Question:
    """The share of the limit that the user's choice of a file sets, not our copy of its weights."""

    def shares() -> list[float]:
        if file_share is None:
            raise MissingError("the file has floats, which are rounded when they are loaded")
        return [share * file_share for share in decode()]

    return Question("decode_of_file_limit", "decode, 1 user: of what the file's bytes allow", None, shares)
