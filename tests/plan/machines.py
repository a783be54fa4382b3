"""Machines and models with round figures."""

from surefoot.api.opening import open_model
from surefoot.plan.machines import SizedMachine
from surefoot.plan.subject import SizedModel, plan_model
from surefoot.speed.rates import Efficiency, MachineRates, make_curve
from tests.stories import stories_gguf

GB = 10**9


def machine(read: float = 10 * GB, operations: float = 100 * GB, memory: int = 8 * GB) -> SizedMachine:
    flat = make_curve([(1, 0.5)])
    kernels = Efficiency({"w8x2a2g32": flat}, flat, 10.0, 1e-6, 1e-4, 1e-5)
    return SizedMachine("test", memory, MachineRates("portable", 2, read, operations, kernels), "round figures")


def model() -> SizedModel:
    return plan_model(open_model(stories_gguf()))
