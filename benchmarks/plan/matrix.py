"""Runs `python -m benchmarks plan` with several settings of the machine, each in a process of its own."""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.plan.figures import Compared, plan_figures
from benchmarks.plan.run import MEMORY
from benchmarks.threads.one_core import one_core
from surefoot import machine
from surefoot.bench.harness.figures import Figure
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.server_process import Launch
from surefoot.bench.harness.timing import EngineError
from surefoot.ops.backend import supported_variants


@dataclass(frozen=True)
class MachineSetting:
    """A part of the machine, or other kernels."""

    name: str
    options: tuple[str, ...] = ()
    has_quota: bool = False  # of one core


ALL_CORES = MachineSetting("all cores")
SETTINGS = (
    ALL_CORES,
    MachineSetting("1 thread", ("--threads", "1")),
    MachineSetting("avx2", ("--variant", "avx2")),
    MachineSetting("quota of one core", has_quota=True),
)


def run_matrix(model: str, options: Sequence[str], say: Say) -> BenchResults:
    """options: of `python -m benchmarks plan`, for every setting."""
    reports, absent = dict[str, dict[str, Any]](), dict[str, str]()
    for setting in SETTINGS:
        say(setting.name)
        if reason := _missing(setting):
            absent[setting.name] = reason
            continue
        reports[setting.name] = _run(model, setting, options)
    return _joined(reports, absent)


def _missing(setting: MachineSetting) -> str | None:
    """Why the setting cannot be had here."""
    if "avx2" in setting.options and "avx2" not in supported_variants():
        return "this machine has no AVX2"
    if setting is not ALL_CORES and "avx2" not in setting.options and machine.cores().usable == 1:
        return "one core is all there is"
    return None


def _run(model: str, setting: MachineSetting, options: Sequence[str]) -> dict[str, Any]:
    launch = Launch((sys.executable, "-m", "benchmarks", "plan", model, "--json", *options, *setting.options), "")
    if not setting.has_quota:
        return _report(launch)
    with one_core(launch, "plan") as (limited, _):
        return _report(limited)


def _report(launch: Launch) -> dict[str, Any]:
    done = subprocess.run(launch.command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if not done.stdout.startswith("{"):
        last = done.stderr.strip().rpartition("\n")[2]
        raise EngineError(f"python -m benchmarks plan ended with {done.returncode}: {last}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _joined(reports: dict[str, dict[str, Any]], absent: dict[str, str]) -> BenchResults:
    cases, memories, rates = list[Compared](), list[Compared](), dict[str, Any]()
    for name, report in reports.items():
        rates[name] = report["model"]["rates"]
        for case in report["model"]["compared"]:
            found = Compared(f"{name}: {case['name']}", case["predicted"], case["measured"])
            (memories if case["name"] == MEMORY else cases).append(found)
    first = next(iter(reports.values()))
    described = first["model"] | {
        "compared": [vars(case) for case in (*cases, *memories)], "rates": rates, "by_setting": _errors(reports),
    }  # fmt: skip
    return BenchResults({}, joined_figures(cases, memories), described, {}, absent, first["machine"])


def joined_figures(cases: Sequence[Compared], memories: Sequence[Compared]) -> list[Figure]:
    """Over all settings; of memory, the worst."""
    figures = [plan_figures(cases, memory) for memory in memories]
    return max(figures, key=lambda some: some[2].value or 0.0)


def _errors(reports: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    errors = {
        name: [
            abs(case["predicted"] - case["measured"]) / case["measured"]
            for case in report["model"]["compared"]
            if case["name"] != MEMORY
        ]
        for name, report in reports.items()
    }
    return {name: {"median": statistics.median(some), "worst": max(some)} for name, some in errors.items()}
