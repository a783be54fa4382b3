"""The policy of which models are in memory. It decides on loads and unloads, and carries out neither. The time is
passed in.

Rules, strongest first:
1. The memory of all models that are not unloaded never exceeds the limit.
2. A model that is pinned or answers requests is never unloaded.
3. A user is paused (`SwapAccounts`) after a swap that took a model from other users, if the user's models exceed
   their share of the memory. Until the pause ends, the user's requests unload no model that unpaused users use, and
   the user's own models may be unloaded for unpaused users at once.
4. Once a request of an unpaused user has waited `max_wait_s`, its model is loaded next. Rules 5 and 6 do not apply.
5. A model in demand stays loaded for RESIDENCE times its load time.
6. A swap begins when the requests that wait for it have together waited as long as the swap costs other requests.
7. The models of least worth are unloaded first, and models that other users use last. Worth is load time times use.
   The use of a model that a swap has just loaded is estimated by an upper confidence bound.
"""

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from surefoot.front.resident import ModelState, ModelTraits, Resident

IN_USE_S = 60.0  # a model counts as used by a user for this time and `max_wait_s` after its last answer
PAUSE = 3.0  # a pause lasts this multiple of swap time times number of users: swaps take a third of the time at most
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # pause before a model whose process crashed is loaded again
NUM_PACES = 8  # recent loads from which the time of the next one is predicted
STEADY_S = 60.0  # after running this long a process has recovered: the next pause is FIRST_PAUSE_S again


class SwapAccounts:
    """Recent use of models by users, and pauses of users whose swaps cost other users time.

    A paused user may not unload models that unpaused users use.

    needs: bytes of each model that can be swapped. room_bytes: memory for all of them. Every user's share of the memory
    is equal, and at least one model.
    """

    def __init__(self, needs: Mapping[str, int], room_bytes: int, max_wait_s: float) -> None:
        self._needs = needs
        self._room_bytes = room_bytes
        self._max_wait_s = max_wait_s
        self._window_s = IN_USE_S + max_wait_s  # a wait for another model must not make this one unused
        self._used: dict[str, dict[str, float]] = {}  # by user: when each model last answered
        self._paused_until: dict[str, float] = {}  # by user

    def use(self, user: str, model: str, now: float) -> None:
        """The model begins or ends an answer to the user."""
        if model in self._needs:
            self._used[user] = {**self._used.pop(user, {}), model: now}  # users in the order of their last use
            while not self._recent(oldest := next(iter(self._used)), now):
                del self._used[oldest]

    def users_of(self, model: str, now: float) -> frozenset[str]:
        return frozenset(user for user in self._used if model in self._recent(user, now))

    def exceeds_share(self, user: str, model: str, now: float) -> bool:
        """Whether the user would need a swap for the model even in a memory of their own, as large as their share: the
        models used since the user last used this one do not fit beside it."""
        recent = self._recent(user, now)
        last_used = recent.get(model, now - self._window_s)
        since = [self._needs[other] for other, used in recent.items() if used > last_used]
        return bool(since) and (sum(since) + self._needs[model]) * self._num_users(now) > self._room_bytes

    def charge(self, user: str, seconds: float, now: float) -> None:
        """Pause the user, whose swap takes these seconds from other users."""
        self._paused_until[user] = now + seconds + min(PAUSE * self._num_users(now) * seconds, self._max_wait_s)

    def unpaused(self, users: Iterable[str], now: float) -> frozenset[str]:
        """The users among these who are not paused."""
        return frozenset(user for user in users if now >= self._paused_until.get(user, now))

    def _num_users(self, now: float) -> int:
        return sum(bool(self._recent(user, now)) for user in self._used)

    def _recent(self, user: str, now: float) -> dict[str, float]:
        return {model: used for model, used in self._used.get(user, {}).items() if now - used < self._window_s}


@dataclass(frozen=True)
class LoadModel:
    name: str


@dataclass(frozen=True)
class UnloadModel:
    name: str


@dataclass(frozen=True)
class ResumeModel:
    """The model was draining and stays loaded: its waiting requests are answered now."""

    name: str


Action = LoadModel | UnloadModel | ResumeModel


class Residency:
    """The state of all models, and the decisions over the memory that they share."""

    def __init__(self, models: Iterable[ModelTraits], limit_bytes: int, max_wait_s: float) -> None:
        self.limit_bytes = limit_bytes
        self.max_wait_s = max_wait_s
        self.residents = {traits.name: Resident(traits, traits.load_s) for traits in models}
        self._paces: deque[float] = deque(maxlen=NUM_PACES)  # real over predicted time of the last loads, of any model
        self._swapping_for: str | None = None  # the model for which others are drained and unloaded
        for resident in self.residents.values():
            resident.is_wanted = resident.traits.is_pinned
        check_fit([resident.traits for resident in self.residents.values()], limit_bytes)
        swapped = {name: r.need_bytes for name, r in self.residents.items() if not r.traits.is_pinned}
        self._accounts = SwapAccounts(swapped, limit_bytes - self.held_bytes, max_wait_s)

    @property
    def held_bytes(self) -> int:
        return sum(resident.held_bytes for resident in self.residents.values())

    @property
    def states(self) -> Mapping[str, ModelState]:
        return {name: resident.state for name, resident in self.residents.items()}

    def longest_wait_s(self, answer_s: float, unload_s: float) -> float:
        """Upper bound on the wait for an answer, if answers and unloads take at most these times. Each model can be
        ahead of an overdue request once: it is loaded, answers and is unloaded."""
        load_s = max(resident.load_s for resident in self.residents.values())
        return self.max_wait_s + len(self.residents) * (answer_s + unload_s + load_s)

    # ---- requests ----

    def ask(self, name: str, now: float, user: str) -> bool:
        """A request arrives. Returns whether the model answers it now; otherwise the request waits."""
        resident = self.residents[name]
        resident.use = resident.use.plus_one(now)
        if resident.state is ModelState.LOADED:
            self._begin(resident, user, now)
            return True
        resident.waiting.append((now, user))
        return False

    def leave(self, name: str, arrival: float, user: str) -> None:
        """The client of a waiting request has disconnected."""
        self.residents[name].waiting.remove((arrival, user))

    def done(self, name: str, now: float, user: str) -> None:
        """A request that the model answered has ended."""
        resident = self.residents[name]
        resident.num_busy -= 1
        resident.last_used = now
        self._accounts.use(user, name, now)

    def pause_s(self, name: str, now: float) -> float:
        """Seconds until the model may be loaded again after a crash; 0: now."""
        return max(0.0, self.residents[name].not_before - now)

    def _begin(self, resident: Resident, user: str, now: float) -> None:
        resident.num_busy += 1
        resident.last_used = now
        self._accounts.use(user, resident.traits.name, now)

    # ---- processes ----

    def loaded(self, name: str, now: float) -> None:
        """A load has succeeded. The waiting requests are answered now."""
        resident = self.residents[name]
        self._learn_pace(max(now - resident.since, 0.001) / resident.traits.load_s)
        resident.is_wanted = resident.traits.is_pinned
        resident.become(ModelState.LOADED, now)
        self._answer_waiting(resident, now)

    def _learn_pace(self, pace: float) -> None:
        """A load's pace depends more on what else the machine does than on the model, so it applies to all models."""
        self._paces.append(pace)
        for resident in self.residents.values():
            resident.load_s = resident.traits.load_s * statistics.median(self._paces)

    def _answer_waiting(self, resident: Resident, now: float) -> None:
        for _, user in resident.waiting:
            self._begin(resident, user, now)
        resident.waiting.clear()

    def ended(self, name: str, now: float) -> None:
        """A model's process has ended: it was unloaded, or it crashed. A crashed model is loaded again after a
        pause, if there is room."""
        resident = self.residents[name]
        if resident.state is not ModelState.UNLOADING:
            is_steady = resident.state is not ModelState.LOADING and now - resident.since > STEADY_S
            resident.num_crashes = 1 if is_steady else resident.num_crashes + 1
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (resident.num_crashes - 1))
            resident.not_before, resident.is_wanted = now + pause_s, True
        resident.become(ModelState.UNLOADED, now)

    # ---- decisions ----

    def decide(self, now: float) -> list[Action]:
        """The actions to start now. The models' states are already updated to match."""
        actions: list[Action] = [*self._settle_swap(now)]
        for resident in self.residents.values():
            is_drained = resident.state is ModelState.DRAINING and not resident.num_busy
            if is_drained or self._is_idle_too_long(resident, now):
                actions.append(self._unload(resident, now))
        for resident in self._candidates(now):
            if resident.need_bytes <= self._room_for(resident):
                if self._swapping_for != resident.traits.name:
                    resident.swap_began = None
                resident.become(ModelState.LOADING, now)
                actions.append(LoadModel(resident.traits.name))
            elif resident.waiting:
                actions += self._swap(resident, now)
                if self._is_overdue(resident, now) and self._swapping_for in (None, resident.traits.name):
                    break  # memory that becomes free is for this model; a swap for another model finishes first
        return actions

    def _room_for(self, resident: Resident) -> int:
        """Bytes that the model may take. Memory that a swap frees is reserved for the swap's model."""
        others = self.held_bytes - resident.held_bytes
        if self._swapping_for is not None and self._swapping_for != resident.traits.name:
            others += self.residents[self._swapping_for].need_bytes
        return self.limit_bytes - others

    def _candidates(self, now: float) -> list[Resident]:
        """Models to load, in order: first those with an overdue request, then by total time waited. Models that only
        paused users wait for come last."""
        candidates = [
            resident
            for resident in self.residents.values()
            if resident.state is ModelState.UNLOADED
            and (resident.waiting or resident.is_wanted)
            and now >= resident.not_before
        ]

        def rank(resident: Resident) -> tuple[float, bool, float]:
            first = self._first_arrival(resident, now)
            if self._is_overdue(resident, now):
                return first, False, 0.0
            return math.inf, first == math.inf, -resident.waited_s(now)

        return sorted(candidates, key=rank)

    def _is_overdue(self, resident: Resident, now: float) -> bool:
        return now - self._first_arrival(resident, now) >= self.max_wait_s

    def _first_arrival(self, resident: Resident, now: float) -> float:
        """When the first waiting request of an unpaused user arrived; infinity: there is none."""
        users = self._accounts.unpaused(resident.users_waiting, now)
        return next((arrival for arrival, user in resident.waiting if user in users), math.inf)

    def _is_idle_too_long(self, resident: Resident, now: float) -> bool:
        keep_alive_s = resident.traits.keep_alive_s
        return (
            resident.state is ModelState.LOADED
            and not resident.traits.is_pinned
            and keep_alive_s is not None
            and not resident.num_busy
            and now - max(resident.last_used, resident.since) >= keep_alive_s
        )

    def unload(self, name: str, now: float) -> UnloadModel | None:
        """Unload a model that has no requests; the next one loads it again. None: it is not in memory. Raises
        ValueError if the model has to stay."""
        resident = self.residents[name]
        if resident.state in (ModelState.UNLOADED, ModelState.UNLOADING):
            return None
        if resident.traits.is_pinned:
            raise ValueError(f"the model {name!r} is pinned: it stays loaded")
        if resident.state is ModelState.LOADING or resident.num_busy:
            what = "is being loaded" if resident.state is ModelState.LOADING else "answers requests"
            raise ValueError(f"the model {name!r} {what}: unload it afterwards")
        return self._unload(resident, now)

    def _unload(self, resident: Resident, now: float) -> UnloadModel:
        assert not resident.num_busy
        assert not resident.traits.is_pinned
        resident.become(ModelState.UNLOADING, now)
        return UnloadModel(resident.traits.name)

    # ---- swaps ----

    def _settle_swap(self, now: float) -> Iterator[ResumeModel]:
        """End a swap whose model is being loaded or no longer requested. Models that still drain for it stay loaded."""
        if self._swapping_for is None:
            return
        resident = self.residents[self._swapping_for]
        if resident.state is ModelState.UNLOADED and resident.waiting and now >= resident.not_before:
            return
        self._swapping_for = None
        for other in self.residents.values():
            if other.state is ModelState.DRAINING:
                other.state = ModelState.LOADED
                self._answer_waiting(other, now)
                yield ResumeModel(other.traits.name)

    def _swap(self, resident: Resident, now: float) -> list[UnloadModel]:
        """Begin to free memory for a model, if no other swap is under way and this one pays."""
        if self._swapping_for is not None:
            return []
        victims = self._victims(resident, now)
        if victims is None or not (self._is_overdue(resident, now) or self._pays(resident, victims, now)):
            return []
        self._swapping_for, resident.swap_began = resident.traits.name, now
        self._charge(resident, victims, now)
        for victim in victims:
            victim.state = ModelState.DRAINING  # `since` is kept: the swap may be cancelled
        return [self._unload(victim, now) for victim in victims if not victim.num_busy]

    def _pays(self, resident: Resident, victims: Sequence[Resident], now: float) -> bool:
        claims = [victim for victim in victims if not self._gives_way(victim, resident, now)]
        cost = sum(victim.swap_cost(now) for victim in claims)
        return resident.waited_s(now) >= cost and not any(victim.is_guarded(now) for victim in claims)

    def _gives_way(self, victim: Resident, resident: Resident, now: float) -> bool:
        """Whether only paused users use the victim, and an unpaused user waits for the model."""
        users = self._accounts.users_of(victim.traits.name, now)
        unpaused = self._accounts.unpaused
        return bool(users) and not unpaused(users, now) and bool(unpaused(resident.users_waiting, now))

    def _charge(self, resident: Resident, victims: Sequence[Resident], now: float) -> None:
        """Charge the waiting users for a swap that takes models from other users: for its load, and for loading those
        models again. The swap is free if the models of any waiting user are within their share. Users who are already
        paused are not charged, so that every pause ends."""
        users = resident.users_waiting
        taken = [victim for victim in victims if self._accounts.users_of(victim.traits.name, now) - users]
        if taken and all(self._accounts.exceeds_share(user, resident.traits.name, now) for user in users):
            for user in self._accounts.unpaused(users, now):
                self._accounts.charge(user, resident.load_s + sum(victim.load_s for victim in taken), now)

    def _victims(self, resident: Resident, now: float) -> list[Resident] | None:
        """The models of least worth that together free enough memory. Empty: unloads under way free enough. None: all
        models together do not."""
        others = self.residents.values()
        coming = sum(other.need_bytes for other in others if other.state is ModelState.UNLOADING)
        missing = resident.need_bytes - self._room_for(resident) - coming
        loaded = [other for other in others if other.state is ModelState.LOADED and not other.traits.is_pinned]
        if not self._accounts.unpaused(resident.users_waiting, now):
            loaded = [other for other in loaded if not self._is_protected(other, resident, now)]
        by_worth = sorted(
            loaded, key=lambda other: (self._is_protected(other, resident, now), other.worth(now), other.last_used)
        )
        chosen: list[Resident] = []
        freed = 0
        while by_worth and freed < missing:
            chosen.append(by_worth.pop(0))
            freed += chosen[-1].need_bytes
        if freed < missing:
            return None
        for victim in chosen[::-1]:  # a large model chosen last may make earlier ones unnecessary
            if freed - victim.need_bytes >= missing:
                freed -= victim.need_bytes
                chosen.remove(victim)
        return chosen

    def _is_protected(self, victim: Resident, resident: Resident, now: float) -> bool:
        """Whether an unpaused user who does not wait for the model uses the victim."""
        others = self._accounts.users_of(victim.traits.name, now) - resident.users_waiting
        return bool(self._accounts.unpaused(others, now))


def check_fit(models: Iterable[ModelTraits], limit_bytes: int) -> None:
    """Raises MemoryError if a model could never be loaded beside the pinned ones."""
    models = list(models)
    pinned = sum(traits.need_bytes for traits in models if traits.is_pinned)
    for traits in models:
        others = pinned - traits.need_bytes * traits.is_pinned
        if traits.need_bytes + others > limit_bytes:
            beside = f" beside {others >> 20} MiB of pinned models" if others else ""
            raise MemoryError(
                f"{traits.name} needs {traits.need_bytes >> 20} MiB{beside}, and the limit is {limit_bytes >> 20} MiB: "
                + ", or ".join(_remedies(traits, others, limit_bytes))
            )


def _remedies(traits: ModelTraits, others: int, limit_bytes: int) -> Iterator[str]:
    """Changes each of which would make the model fit."""
    if traits.need_bytes + others - limit_bytes < traits.kv_bytes:
        yield "lower its context or kv-memory"
    if others and traits.need_bytes <= limit_bytes:
        yield "pin fewer models"
    yield "leave it out"
