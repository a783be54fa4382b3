"""Rates as data: what the kernels of each variant reach, measured once (`efficiency/*.json`), and a nominal machine."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from surefoot.speed.rates import Efficiency, EfficiencyCurve, MachineRates

# Variants whose kernels were not measured take the curves of the one most like them.
STAND_INS = {"avxvnni": "avx512", "neon": "avx2", "i8mm": "avx512"}
# int8 multiplications and additions of a core in a cycle, by variant: of processors with two vector units.
OPERATIONS = {"amx": 2048, "avx512": 256, "avx512bw": 80, "avxvnni": 128, "avx2": 64}
PORTABLE_OPERATIONS = 32
# Of a machine that was not measured.
CLOCK_HZ = 2.5e9
THREAD_READS, MOST_READS = 10e9, 80e9  # bytes a second


def nominal_rates(variant: str, threads: int) -> MachineRates:
    """A usual machine. For the shape of step times alone: that twice the rows take 1.3 times as long, say, not that
    they take 40 ms."""
    operations = OPERATIONS.get(variant, PORTABLE_OPERATIONS) * CLOCK_HZ * threads
    reads = min(MOST_READS, threads * THREAD_READS)
    return MachineRates(variant, threads, reads, operations, shipped_efficiency(variant))


@cache
def shipped_efficiency(variant: str) -> Efficiency:
    """What was measured once for the variant; of a variant that was never measured, that of the one most like it."""
    folder = files("surefoot.speed").joinpath("efficiency")
    name = variant if folder.joinpath(f"{variant}.json").is_file() else STAND_INS.get(variant, "portable")
    return efficiency_from_json(json.loads(folder.joinpath(f"{name}.json").read_text()))


def efficiency_from_json(values: Mapping[str, Any]) -> Efficiency:
    fields = {name: value for name, value in values.items() if name not in ("linear", "attention", "source")}
    linear = {name: _curve(curve) for name, curve in values["linear"].items()}
    return Efficiency(linear=linear, attention=_curve(values["attention"]), **fields)


def efficiency_as_json(efficiency: Efficiency, source: str) -> dict[str, Any]:
    return {"source": source, **asdict(efficiency)}


def _curve(values: Mapping[str, Any]) -> EfficiencyCurve:
    return EfficiencyCurve(tuple(values["rows"]), tuple(values["values"]))
