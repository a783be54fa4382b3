"""Which models are loaded: never over the limit, bounded waits, no thrashing. Time is simulated."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from surefoot.front.residency import Residency, UnloadModel
from surefoot.front.resident import ModelState, ModelTraits
from tests.front.patterns import hot, in_phases, num_loads_by_order, num_loads_with_hindsight, skewed
from tests.front.simulation import TICK_S, UNLOAD_S, Simulation

LONGEST_ANSWER_S = 5.0


def three(load_s: float = 2.0, need: int = 10, **more: object) -> tuple[ModelTraits, ...]:
    return tuple(ModelTraits(name, need, load_s, **more) for name in "ABC")  # type: ignore[arg-type]


def num_loads_for(pattern: str, num_fit: int, load_s: float = 2.0) -> int:
    """Loads of models of one size, for a client that waits for each answer before it asks again."""
    models = tuple(ModelTraits(name, 10, load_s) for name in sorted(set(pattern)))
    simulation = Simulation(models, limit_bytes=10 * num_fit)
    for model in pattern:
        simulation.run_until_served(simulation.ask(model))
    return simulation.num_loads


# ---- the pattern A B A A C A B C, where two of three fit ----


def test_pattern_of_several_clients_takes_four_loads() -> None:
    """Each request comes a second after the one before, whether that is answered or not."""
    simulation = Simulation(three(), limit_bytes=20)
    for model in "ABAACABC":
        simulation.ask(model)
        simulation.advance(1.0)
    simulation.advance(60)
    assert all(request.ended is not None for request in simulation.requests)
    assert simulation.num_loads <= 4
    assert simulation.longest_wait_s() <= 10


def test_pattern_of_one_client_takes_four_loads() -> None:
    """Each request comes when the one before is answered, so that none can wait for company. Hindsight takes four loads
    too, least recently used five, first in first out six."""
    assert num_loads_for("ABAACABC", 2) == 4
    assert num_loads_with_hindsight("ABAACABC", 2) == 4
    assert num_loads_by_order("ABAACABC", 2, is_renewed_by_use=True) == 5
    assert num_loads_by_order("ABAACABC", 2, is_renewed_by_use=False) == 6


def test_load_times_that_vary_by_chance_change_nothing() -> None:
    """The first load took three times as long as those after it: this counts for all models."""
    models = (ModelTraits("A", 10, 2.0), ModelTraits("B", 10, 2.0), ModelTraits("C", 10, 2.0))
    policy = Residency(models, 20, 30.0)
    for name, began, ended in (("A", 0.0, 6.0), ("B", 10.0, 12.0), ("C", 20.0, 22.0)):
        policy.residents[name].become(ModelState.LOADING, began)
        policy.loaded(name, ended)
    assert {resident.load_s for resident in policy.residents.values()} == {2.0}


def test_storm_of_alternating_requests_does_not_thrash() -> None:
    """Three clients, each with its own model, ask again at once; two models fit."""
    simulation = Simulation(three(), limit_bytes=20)
    open_requests = {model: simulation.ask(model, 0.2) for model in "ABC"}
    while simulation.now < 300:
        simulation.advance(TICK_S)
        for model, request in open_requests.items():
            if request.ended is not None:
                open_requests[model] = simulation.ask(model, 0.2)
    # Loading may take a third of the time of each of two places: 300 s * 2 / 3 / 2 s.
    assert simulation.num_loads <= 100
    assert simulation.longest_wait_s() <= simulation.max_wait_s
    for model in "ABC":  # and each is served
        assert sum(request.model == model and request.ended is not None for request in simulation.requests) > 100


def test_lone_client_waits_a_load_time_at_most_before_a_swap() -> None:
    simulation = Simulation(three(), limit_bytes=20)
    for model in "AB":
        simulation.run_until_served(simulation.ask(model))
    request = simulation.ask("C")
    simulation.run_until_served(request)
    assert request.begun is not None
    assert request.begun - request.arrival <= 2.0 + UNLOAD_S + 2.0 + 3 * TICK_S


def test_idle_model_makes_room_at_once() -> None:
    simulation = Simulation(three(), limit_bytes=20)
    for model in "AB":
        simulation.run_until_served(simulation.ask(model))
    simulation.advance(60)
    request = simulation.ask("C")
    simulation.run_until_served(request)
    assert request.begun is not None
    assert request.begun - request.arrival <= UNLOAD_S + 2.0 + 3 * TICK_S


# ---- loads of one client, beside other rules ----


@pytest.mark.parametrize(("num_models", "num_fit"), [(3, 2), (5, 3)])
def test_no_more_loads_than_least_recently_used_or_first_in_first_out(num_models: int, num_fit: int) -> None:
    """Summed over patterns in which models differ in use, for good or for a while. With hindsight there would be fewer,
    but no rule without it can promise less than `num_fit` times as many."""
    patterns = [make(random.Random(seed), num_models, 100) for seed in range(3) for make in (skewed, hot, in_phases)]
    ours = sum(num_loads_for(pattern, num_fit) for pattern in patterns)
    assert ours <= sum(num_loads_by_order(pattern, num_fit, is_renewed_by_use=True) for pattern in patterns)
    assert ours <= sum(num_loads_by_order(pattern, num_fit, is_renewed_by_use=False) for pattern in patterns)
    assert ours <= num_fit * sum(num_loads_with_hindsight(pattern, num_fit) for pattern in patterns)


# ---- by an operator ----


def test_an_operator_unloads_a_model_that_nobody_uses() -> None:
    simulation = Simulation((*three(), ModelTraits("D", 10, 2.0, is_pinned=True)), limit_bytes=30)
    assert simulation.policy.unload("A", 0) is None
    simulation.run_until_served(simulation.ask("A"))
    assert simulation.policy.unload("A", simulation.now) == UnloadModel("A")
    assert simulation.policy.unload("A", simulation.now) is None
    with pytest.raises(ValueError, match="pinned"):
        simulation.policy.unload("D", simulation.now)
    simulation.ask("B", 5.0)
    with pytest.raises(ValueError, match="being loaded"):
        simulation.policy.unload("B", simulation.now)
    simulation.advance(3)
    with pytest.raises(ValueError, match="answers"):
        simulation.policy.unload("B", simulation.now)


# ---- who goes ----


def test_least_worth_goes() -> None:
    """B was used last, but A is used more and takes longer to load."""
    models = (ModelTraits("A", 10, 8.0), ModelTraits("B", 10, 1.0), ModelTraits("C", 10, 1.0))
    simulation = Simulation(models, limit_bytes=20)
    for model in "AAAB":
        simulation.run_until_served(simulation.ask(model))
    simulation.advance(100)
    simulation.run_until_served(simulation.ask("C"))
    assert simulation.policy.states["A"] is ModelState.LOADED
    assert simulation.policy.states["B"] is ModelState.UNLOADED


def test_only_as_many_go_as_are_needed() -> None:
    """The small models are worth least, but do not leave enough room: the large one alone does."""
    small = [ModelTraits(name, 2, 1.0) for name in "ab"]
    simulation = Simulation((*small, ModelTraits("large", 10, 1.0), ModelTraits("wanted", 10, 1.0)), limit_bytes=14)
    for model in ("a", "b", "large", "large"):
        simulation.run_until_served(simulation.ask(model))
    simulation.advance(100)
    simulation.run_until_served(simulation.ask("wanted"))
    assert simulation.policy.states["a"] is ModelState.LOADED
    assert simulation.policy.states["b"] is ModelState.LOADED


def test_pinned_model_is_loaded_at_start_and_stays() -> None:
    models = (ModelTraits("pinned", 10, 1.0, is_pinned=True), *three())
    simulation = Simulation(models, limit_bytes=20)
    simulation.advance(2)
    assert simulation.policy.states["pinned"] is ModelState.LOADED
    for model in "ABC":
        simulation.run_until_served(simulation.ask(model))
    assert simulation.policy.states["pinned"] is ModelState.LOADED


def test_unused_model_is_unloaded_after_its_keep_alive() -> None:
    simulation = Simulation(three(keep_alive_s=5.0), limit_bytes=30)
    simulation.run_until_served(simulation.ask("A"))
    simulation.advance(4)
    assert simulation.policy.states["A"] is ModelState.LOADED
    simulation.advance(2)
    assert simulation.policy.states["A"] is ModelState.UNLOADED


def test_model_that_answers_is_drained_first() -> None:
    simulation = Simulation(three(), limit_bytes=20, max_wait_s=3.0)
    for model in "AB":
        simulation.run_until_served(simulation.ask(model))
    long = [simulation.ask(model, 20.0) for model in "AB"]
    request = simulation.ask("C")
    simulation.advance(10)
    assert request.begun is None
    assert ModelState.DRAINING in simulation.policy.states.values()
    simulation.run_until_served(request)
    assert min(r.ended or 0 for r in long) <= (request.begun or 0)


def test_drained_model_stays_if_the_other_is_not_wanted_any_more() -> None:
    simulation = Simulation(three(), limit_bytes=20, max_wait_s=3.0)
    for model in "AB":
        simulation.run_until_served(simulation.ask(model))
    for model in "AB":
        simulation.ask(model, 20.0)
    request = simulation.ask("C")
    simulation.advance(5)
    (draining,) = (name for name, state in simulation.policy.states.items() if state is ModelState.DRAINING)
    held_back = simulation.ask(draining)
    assert held_back.begun is None
    simulation.leave(request)
    assert held_back.begun == simulation.now
    assert simulation.policy.states[draining] is ModelState.LOADED


# ---- crashes ----


def test_crashed_model_comes_back_after_growing_pauses() -> None:
    simulation = Simulation(three(), limit_bytes=20)
    simulation.run_until_served(simulation.ask("A"))
    pauses = []
    for _ in range(3):
        simulation.crash("A")
        pauses.append(simulation.policy.pause_s("A", simulation.now))
        simulation.advance(pauses[-1] + 2.5)
        assert simulation.policy.states["A"] is ModelState.LOADED
    assert pauses == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("need", "kv", "num_pinned", "advice"),
    [
        (100, 20, 0, "leave it out"),
        (60, 20, 0, "lower its context or kv-memory, or leave it out"),
        (45, 5, 1, "pin fewer models, or leave it out"),
        (60, 5, 1, "leave it out"),
    ],
)
def test_what_can_never_fit_is_refused_with_advice_that_works(need: int, kv: int, num_pinned: int, advice: str) -> None:
    pinned = [ModelTraits(f"pinned {number}", 30 << 20, 1.0, is_pinned=True) for number in range(num_pinned)]
    with pytest.raises(MemoryError, match=rf"large needs {need} MiB.* the limit is 50 MiB: {advice}$"):
        Residency([*pinned, ModelTraits("large", need << 20, 1.0, kv_bytes=kv << 20)], 50 << 20, 30.0)


def test_pinned_models_that_do_not_fit_together_are_refused() -> None:
    pinned = [ModelTraits(name, 30 << 20, 1.0, is_pinned=True) for name in "ab"]
    with pytest.raises(MemoryError, match=r"beside 30 MiB of pinned models, .* pin fewer models"):
        Residency(pinned, 50 << 20, 30.0)


# ---- any order of events ----

MODELS = (
    ModelTraits("pinned", 3, 1.0, is_pinned=True),
    ModelTraits("small", 2, 0.5, keep_alive_s=4.0),
    ModelTraits("middle", 5, 2.0),
    ModelTraits("large", 9, 4.0),
)


class AnyOrder(RuleBasedStateMachine):
    """The simulation checks after each decision: never over the limit, no busy and no pinned model unloaded."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation(MODELS, limit_bytes=12, max_wait_s=6.0)

    @rule(model=st.sampled_from(MODELS), seconds=st.floats(0.01, LONGEST_ANSWER_S))
    def ask(self, model: ModelTraits, seconds: float) -> None:
        self.simulation.ask(model.name, seconds)

    @rule(seconds=st.floats(0.01, 8.0))
    def advance(self, seconds: float) -> None:
        self.simulation.advance(seconds)

    def waiting(self) -> list[object]:
        return [r for r in self.simulation.requests if r.begun is None and not r.is_failed]

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.simulation.leave(data.draw(st.sampled_from(self.waiting())))  # type: ignore[arg-type]

    def running(self) -> list[str]:
        states = self.simulation.policy.states
        return [name for name in states if states[name] not in (ModelState.UNLOADED, ModelState.UNLOADING)]

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.simulation.crash(data.draw(st.sampled_from(self.running())))

    @invariant()
    def rules_hold(self) -> None:
        self.simulation.check()

    def teardown(self) -> None:
        """Left alone, everything that waits is served."""
        self.simulation.run_until_all_served()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(MODELS), st.floats(0, LONGEST_ANSWER_S), st.floats(0, 3)), max_size=40))
def test_waits_are_bounded(arrivals: list[tuple[ModelTraits, float, float]]) -> None:
    simulation = Simulation(MODELS, limit_bytes=12, max_wait_s=6.0)
    for model, seconds, pause_s in arrivals:
        simulation.ask(model.name, seconds)
        simulation.advance(pause_s)
    simulation.run_until_all_served()
    bound_s = simulation.policy.longest_wait_s(LONGEST_ANSWER_S, UNLOAD_S + 3 * TICK_S)
    assert all(request.begun is not None for request in simulation.requests)
    assert simulation.longest_wait_s() <= bound_s
