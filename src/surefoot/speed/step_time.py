"""Predicts how long a step takes, from what the model computes and what the machine reaches.

Known before the first step. `core.step_cost` learns factors over it from the steps that follow.
"""

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import NamedTuple

from surefoot.core import TimedStep
from surefoot.speed.rates import MachineRates, form_name, limb_operations, overlapped
from surefoot.speed.traffic import AttentionUse, MatrixUse, ModelWork

SHAPE_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048)
CHUNK_ROWS = 256  # of a chunk that tells what context costs
CALLS_PER_MATRIX = 3  # operations: the matrix's own, and what comes before and after
# Cache lines that cross between NUMA nodes, one after the other, in an operation of the thread pool: the caller takes
# another node's line to write work into it, that node reads it, takes the counter that the caller watches, and the
# caller reads that.
LINES_PER_CALL = 4


class ChunkLoad(NamedTuple):
    """A request's part of a step."""

    num_rows: int
    context: int  # tokens before its first row


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step, by what takes them."""

    memory: float = 0.0  # of the weights, if nothing else were done
    products: float = 0.0  # of matrices, if memory were free
    linear: float = 0.0  # memory and products together
    attention: float = 0.0
    rest: float = 0.0  # norms, activations, waiting for threads, Python
    link: float = 0.0  # activations, keys and values from other NUMA nodes
    barriers: float = 0.0  # NUMA nodes that wait for each other

    @property
    def total(self) -> float:
        return self.linear + self.attention + self.rest + self.link + self.barriers

    @property
    def bound(self) -> str:
        """What takes most of the step."""
        if self.attention > max(self.linear, self.rest):
            return "attention"
        if self.rest + self.link + self.barriers > self.linear:
            return "overhead"
        return "memory bandwidth" if self.memory > self.products else "arithmetic"


def total_parts(parts: Iterable[tuple[float, StepParts]]) -> StepParts:
    """Of several steps, each as often as its number says."""
    scaled = [[count * seconds for seconds in astuple(step)] for count, step in parts]
    return StepParts(*map(sum, zip(*scaled, strict=True)))


class PredictedSteps:
    """Times of steps of one model on one machine."""

    def __init__(self, work: ModelWork, rates: MachineRates) -> None:
        self.work = work
        self.rates = rates
        self._linear: dict[tuple[int, int], StepParts] = {}
        self._num_elements, self._num_calls = work.num_elements, CALLS_PER_MATRIX * work.num_matrices

    def seconds(self, chunks: Iterable[ChunkLoad], num_logits: int) -> float:
        return self.parts(list(chunks), num_logits).total

    def parts(self, chunks: list[ChunkLoad], num_logits: int) -> StepParts:
        num_rows = sum(chunk.num_rows for chunk in chunks)
        linear = self._matrices(num_rows, num_logits)
        attends = [self._attend(chunk, use) for use in self.work.attention for chunk in chunks]
        return StepParts(
            linear.memory,
            linear.products,
            linear.linear,
            sum(overlapped(*attend) for attend in attends),
            self._rest(chunks, num_rows, num_logits),
            self._link(attends, num_rows),
            self._num_calls * LINES_PER_CALL * self.rates.link.line_s,
        )

    def decode_seconds(self, num_requests: int, context: int) -> float:
        return self.seconds([ChunkLoad(1, context)] * num_requests, num_requests)

    def prefill_seconds(self, num_tokens: int, max_chunk: int) -> float:
        """A prompt alone, in chunks."""
        return self.prefill_parts(num_tokens, max_chunk).total

    def prefill_parts(self, num_tokens: int, max_chunk: int) -> StepParts:
        chunks = [ChunkLoad(min(max_chunk, num_tokens - start), start) for start in range(0, num_tokens, max_chunk)]
        return total_parts((1, self.parts([chunk], int(chunk is chunks[-1]))) for chunk in chunks)

    def shape(self) -> tuple[TimedStep, ...]:
        """Times of steps by rows, without context and drafts: the shape that the scheduler's and speculation's learnt
        times follow between the sizes that they have seen."""
        times = [1000 * self.seconds([ChunkLoad(rows, 0)], 1) for rows in SHAPE_ROWS]
        return tuple(TimedStep(rows, max(times[: i + 1])) for i, rows in enumerate(SHAPE_ROWS))

    def row_context(self) -> float:
        """Context length at which attending to earlier tokens costs as much as the matrix products of the token
        itself. Layers with a window or a state are not counted."""
        own = self._matrices(CHUNK_ROWS, 0).linear / CHUNK_ROWS
        rate = self.rates.efficiency.attention.at(CHUNK_ROWS) * self.rates.int8_operations_per_second
        products = sum(use.products for use in self.work.attention if not use.window)
        return own * rate / (2 * products) if products else math.inf

    def _matrices(self, num_rows: int, num_logits: int) -> StepParts:
        key = (num_rows, num_logits)
        if key not in self._linear:
            times = [self._matrix(use, num_rows) for use in self.work.matrices]
            times += [self._matrix(use, num_logits) for use in self.work.head if num_logits]
            total = sum(overlapped(memory, products) for memory, products in times)
            self._linear[key] = StepParts(sum(memory for memory, _ in times), sum(part for _, part in times), total)
        return self._linear[key]

    def _matrix(self, use: MatrixUse, num_rows: int) -> tuple[float, float]:
        """Seconds for memory and for products. Rows spread over the experts that they go through."""
        rates, num_experts = self.rates, use.experts_of(num_rows)
        rows = num_rows * use.top_k / num_experts
        efficiency = rates.efficiency.of(form_name(use.format, use.limbs)).at(rows)
        operations = use.n * use.k * limb_operations(use.format, use.limbs) * rows * num_experts
        memory = use.nbytes * num_experts / rates.read_bytes_per_second
        return use.count * memory, use.count * operations / (efficiency * rates.int8_operations_per_second)

    def _attend(self, chunk: ChunkLoad, use: AttentionUse) -> tuple[float, float]:
        """Seconds for memory and for products. A chunk reads its context once, and computes it for each row."""
        length = chunk.context + chunk.num_rows
        seen = _mean_context(chunk, use.window)
        rates, efficiency = self.rates, self.rates.efficiency.attention.at(chunk.num_rows)
        products = 2.0 * use.products * seen * chunk.num_rows
        memory = use.nbytes * min(length, use.window + chunk.num_rows if use.window else length)
        return memory / rates.read_bytes_per_second, products / (efficiency * rates.int8_operations_per_second)

    def _link(self, attends: Iterable[tuple[float, float]], num_rows: int) -> float:
        """What comes from other nodes: activations, and keys and values, which lie on all nodes in turn. The latter
        come while attention computes: only the time counts by which that takes longer."""
        rates, link = self.rates, self.rates.link
        if link.num_nodes == 1:
            return 0.0
        slower = link.remote_share / link.num_nodes * rates.read_bytes_per_second / link.bytes_per_second
        attention = sum(
            overlapped(memory, products, slower * memory) - overlapped(memory, products) for memory, products in attends
        )
        exchanged = link.remote_share * num_rows * self.work.exchanged_bytes(link.num_nodes)
        return attention + exchanged / link.bytes_per_second

    def _rest(self, chunks: list[ChunkLoad], num_rows: int, num_logits: int) -> float:
        work, rates, kernels = self.work, self.rates, self.rates.efficiency
        elements = num_rows * (self._num_elements + work.state_bytes / 2) + num_logits * work.vocab_size
        calls = self._num_calls * kernels.call_s
        states = 2 * len(chunks) * work.state_bytes / rates.read_bytes_per_second
        spread = elements * kernels.operations_per_element / rates.int8_operations_per_second
        return spread + calls + states + kernels.step_s + kernels.row_s * max(num_logits, len(chunks))


def _mean_context(chunk: ChunkLoad, window: int) -> float:
    """Tokens that a row of the chunk attends to, on average."""
    seen = chunk.context + (chunk.num_rows + 1) / 2
    return min(seen, window) if window else seen
