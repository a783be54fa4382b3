"""The figures of `python -m benchmarks ops`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from benchmarks.ops.settings import FORMS, OpsSettings
from surefoot.bench.harness.figures import Figure, Measurements, MissingError, Question, Target, median, select
from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK, Measurement, ratios, shares_of_limit


class Figures:
    """Computes all figures of a run. absent: reasons, by peer that did not take part."""

    def __init__(self, measurements: Measurements, settings: OpsSettings, absent: Mapping[str, str]) -> None:
        self._all, self._settings, self._absent = measurements, settings, absent
        self._model = settings.headline.name

    def compute(self) -> list[Figure]:
        return [question.figure() for question in self._questions()]

    def _questions(self) -> Iterator[Question]:
        yield from self._few_rows("w8", 0.85)
        yield from self._few_rows("w4", 0.75)
        yield from self._many_rows("w8", 0.60)
        yield from self._many_rows("w4", 0.50)
        meaning = "most time over that at the next row count"
        yield Question("smoothness", meaning, Target(1.15, at_least=False), self._smoothness)
        yield from self._attention()
        yield from self._torch()
        yield from self._llama("w8", "q8_0", "llama_q8")
        yield from self._llama("w4", "q4_0", "llama_q4")
        yield from self._overhead()

    def _few_rows(self, fmt: str, bound: float) -> Iterator[Question]:
        def of_bandwidth(rows: int) -> float:
            return median(shares_of_limit(self._linear(fmt, rows, 2), BANDWIDTH))

        def least() -> float:
            return min(of_bandwidth(rows) for rows in self._settings.rows if rows <= 4)

        name, target = fmt.upper(), Target(bound)
        yield Question(f"{fmt}_row1_of_bandwidth", f"{name}, 1 row: of bandwidth", target, lambda: of_bandwidth(1))
        yield Question(f"{fmt}_few_rows_of_bandwidth", f"{name}, 1 to 4 rows, the least: of bandwidth", target, least)

    def _many_rows(self, fmt: str, bound: float) -> Iterator[Question]:
        def of_peak(limbs: int) -> float:
            return median(shares_of_limit(self._linear(fmt, 512, limbs), INT8_PEAK))

        def meaning(limbs: str) -> str:
            return f"{fmt.upper()}, 512 rows, {limbs}: of int8 peak"

        yield Question(f"{fmt}_rows512_of_peak", meaning("2 limbs"), Target(bound), lambda: of_peak(2))
        yield Question(f"{fmt}_one_limb_rows512_of_peak", meaning("1 limb"), None, lambda: of_peak(1))

    def _attention(self) -> Iterator[Question]:
        def decode() -> float:
            return median(shares_of_limit(select(self._all, "attention decode", requests=1), BANDWIDTH))

        def prefill(tokens: int) -> float:
            attention = select(self._all, "layer", tokens=tokens, part="attention")
            return median(ratios(attention, [*attention, *select(self._all, "layer", tokens=tokens, part="rest")]))

        where = f"decode at {self._settings.context:,} tokens"
        yield Question("attention_decode_of_bandwidth", f"{where}: of bandwidth", Target(0.70), decode)
        share, limit = "attention in prefill of", Target(0.35, at_least=False)
        yield Question("attention_prefill2k_share", f"{share} 2,048 tokens", limit, lambda: prefill(2048))
        yield Question("attention_prefill8k_share", f"{share} 8,192 tokens", None, lambda: prefill(8192))

    def _torch(self) -> Iterator[Question]:
        for rows, key, two, one in ((1, "row1", 1.8, None), (512, "rows512", 1.0, 1.8)):
            name = f"torch_bf16_{key}"
            yield self._against("torch", "bfloat16", f"{name}_ratio", "w8", rows, 2, two)
            yield self._against("torch", "bfloat16", f"{name}_one_limb_ratio", "w8", rows, 1, one)
            yield self._against("torch", "bfloat16", f"{name}_w4_ratio", "w4", rows, 2, None)

    def _llama(self, ours: str, theirs: str, name: str) -> Iterator[Question]:
        yield self._against("llama.cpp", theirs, f"{name}_row1_ratio", ours, 1, 2, 1.0)
        yield self._against("llama.cpp", theirs, f"{name}_rows512_ratio", ours, 512, 2, 5.0)

    def _against(
        self, peer: str, theirs: str, name: str, ours: str, rows: int, limbs: int, bound: float | None
    ) -> Question:
        def ratio() -> float:
            if peer in self._absent:
                raise MissingError(self._absent[peer])
            parts = self._linear(ours, rows, limbs)
            # Peers' products take floats, so ours include the quantisation of the rows.
            parts += [m for part in parts for m in self._quantise(part, rows, limbs)]
            peer_parts = select(self._all, "linear", peer, model=self._model, format=theirs, rows=rows)
            # A claim must hold by median and by best times.
            return min(median(ratios(peer_parts, parts)), _best(peer_parts) / _best(parts))

        speed = f"over {peer} {theirs}"
        meaning = f"{ours.upper()}, {limbs} limb{'s' * (limbs > 1)}, {rows} row{'s' * (rows > 1)}: {speed}"
        return Question(name, meaning, None if bound is None else Target(bound), ratio)

    def _overhead(self) -> Iterator[Question]:
        def worst(share: Callable[[str], float]) -> float:
            return max(share(model.name) for model in self._settings.step_models)

        def replayed(model: str) -> float:
            return median(ratios(select(self._all, "call", way="replay"), self._step(model, "replayed")))

        def per_op(model: str) -> float:
            return 1 - median(ratios(self._step(model, "replayed"), self._step(model, "per op")))

        meaning, limit = "Python in a decode step", Target(0.03, at_least=False)
        yield Question("call_overhead_share", f"{meaning}: replayed", limit, lambda: worst(replayed))
        yield Question("call_overhead_share_per_op", f"{meaning}: call by call", None, lambda: worst(per_op))

    def _linear(self, fmt: str, rows: int, limbs: int) -> list[Measurement]:
        return select(self._all, "linear", model=self._model, format=fmt, rows=rows, limbs=limbs)

    def _quantise(self, part: Measurement, rows: int, limbs: int) -> list[Measurement]:
        return select(self._all, "quantise", k=part.case.labels["k"], rows=rows, limbs=limbs)

    def _step(self, model: str, way: str) -> list[Measurement]:
        return select(self._all, "step", model=model, way=way)

    def _smoothness(self) -> float:
        """The largest time over that at the next row count, from the best times of whole layers: times of single
        matrices at few rows are short and noisy."""
        by_series = [
            roughness({rows: self._layer_best(model.name, fmt, limbs, rows) for rows in self._settings.rows})
            for model in self._settings.models
            for fmt in self._settings.formats
            for limbs in FORMS
        ]
        return max(value for value in by_series if value is not None)

    def _layer_best(self, model: str, fmt: str, limbs: int, rows: int) -> float:
        return _best(select(self._all, "linear", model=model, format=fmt, limbs=limbs, rows=rows))


def _best(parts: Sequence[Measurement]) -> float:
    return sum(part.best for part in parts if part.best is not None)


def roughness(times: Mapping[int, float]) -> float | None:
    """The largest t(r) / t(next larger r) of times by row count. At most 1 if more rows never take less time."""
    ordered = [times[rows] for rows in sorted(times)]
    return max((few / more for few, more in pairwise(ordered)), default=None)
