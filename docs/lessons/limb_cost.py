"""What a limb costs: the time of a matrix product by limbs of inputs and weights, and by rows. See limb-cost.md.

python docs/lessons/limb_cost.py [--quick] [--svg plot.svg]
"""

from collections.abc import Sequence

import numpy as np
from lesson import arguments, best_seconds, draw, show

from surefoot.ops import Backend, WeightFormat, linear, pack, quantise
from surefoot.ops.activations import ActivationForm
from surefoot.ops.arrays import empty
from surefoot.ops.random_weights import copies_of, random_weights
from surefoot.speed.measure_rates import AttentionShape, LinearShape, measure_rates
from surefoot.speed.rates import form_name, limb_operations, overlapped

# Name, weights, limbs of the inputs.
FORMS = (
    ("one limb by one", WeightFormat(8, 1, 0), 1),
    ("two by one", WeightFormat(8, 1, 0), 2),
    ("two by two, 8 bits", WeightFormat(8, 2, 32), 2),
    ("two by two, 4 bits", WeightFormat(4, 2, 32), 2),
)
POOL = 48 << 20  # bytes of copies, so that weights come from memory


def measure_s(backend: Backend, fmt: WeightFormat, limbs: int, n: int, k: int, rows: int, rounds: int) -> float:
    """Seconds of one product. Copies take turns."""
    first = pack(backend, random_weights(n, k, fmt))
    copies = copies_of(backend, first, max(2, min(POOL // first.nbytes, 1 + (1 << 26) // (n * k * rows))))
    x = quantise(backend, np.random.default_rng(1).standard_normal((rows, k), np.float32), ActivationForm(limbs))
    out = empty((rows, n), np.float32)

    def run() -> None:
        for matrix in copies:
            linear(backend, x, matrix, out=out)

    return best_seconds(run, rounds) / len(copies)


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words, model=False)
    n, k = (64, 256) if asked.quick else (2048, 2048)
    counts, backend = (1, 16) if asked.quick else (1, 4, 16, 64, 256), Backend(threads=asked.threads)
    shapes = [LinearShape(fmt, limbs, n, k) for _, fmt, limbs in FORMS]
    rates = measure_rates(backend, shapes, AttentionShape(4, 2, 64, 64), 0.1 if asked.quick else 10)
    rows, lines = [], {}
    for name, fmt, limbs in FORMS:
        nbytes = pack(backend, random_weights(n, k, fmt)).nbytes
        for count in counts:
            efficiency = rates.efficiency.of(form_name(fmt, limbs)).at(count)
            products = n * k * count * limb_operations(fmt, limbs)
            products_s = products / (efficiency * rates.int8_operations_per_second)
            predicted = overlapped(nbytes / rates.read_bytes_per_second, products_s)
            measured = measure_s(backend, fmt, limbs, n, k, count, 1 if asked.quick else 8)
            rows.append((name, count, limbs * fmt.limbs, nbytes / (n * k), 1e6 * predicted, 1e6 * measured))
        lines[name] = [(row[1], row[5] / row[1]) for row in rows if row[0] == name]
    print(f"a matrix of {n} x {k}, {backend.variant}, {backend.threads} threads")
    show(("form", "rows", "products of limbs", "bytes a weight", "predicted µs", "measured µs"), rows)
    draw(asked.svg, "Time of a product, for each row", "rows", "µs a row", lines)


if __name__ == "__main__":
    main()
