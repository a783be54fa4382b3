"""Which models are in memory. Decides on loads and unloads and does neither; the time is passed in.

Rules, in the order of their strength:
1. Memory: the needs of all models that are not unloaded never exceed the limit.
2. A pinned model is never unloaded, nor is one that answers requests.
3. A user whose models exceed their share of the memory, and who took a model from other users for one of them, leaves
   those users' models alone for a while (swap_accounts.py), and gives way to them.
4. Once a request of any other user has waited `max_wait_s`, its model comes next: nothing below counts for it.
5. A model in demand stays for RESIDENCE times its load time.
6. A swap begins when the requests that wait for it have together waited as long as the swap will cost others.
7. The models of least worth go, those that other users use last. Worth is time to load times use. A model that a swap
   has just brought in has the benefit of the doubt: what little is known of its use counts for as much as can be
   doubted.
"""

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from surefoot.front.resident import ModelState, ModelTraits, Resident
from surefoot.front.swap_accounts import SwapAccounts

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # before a model whose process ended by itself is loaded again
NUM_PACES = 8  # loads from which the next one's time is predicted
STEADY_S = 60.0  # a process that ran this long has recovered: the next pause is short again


@dataclass(frozen=True)
class LoadModel:
    name: str


@dataclass(frozen=True)
class UnloadModel:
    name: str


@dataclass(frozen=True)
class ResumeModel:
    """The model was to be unloaded and stays: its waiting requests are answered now."""

    name: str


Action = LoadModel | UnloadModel | ResumeModel


class Residency:
    """The models and the memory that they share."""

    def __init__(self, models: Iterable[ModelTraits], limit_bytes: int, max_wait_s: float) -> None:
        self.limit_bytes = limit_bytes
        self.max_wait_s = max_wait_s
        self.residents = {traits.name: Resident(traits, traits.load_s) for traits in models}
        self._paces: deque[float] = deque(maxlen=NUM_PACES)  # times of the last loads, of any model, over the predicted
        self._swapping_for: str | None = None  # the model for which others drain or are unloaded
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
        """The latest that an answer begins, if answers and unloads take no longer than this. Once a request is overdue,
        each model can be ahead of it once: it is loaded, answers and goes."""
        load_s = max(resident.load_s for resident in self.residents.values())
        return self.max_wait_s + len(self.residents) * (answer_s + unload_s + load_s)

    # ---- requests ----

    def ask(self, name: str, now: float, user: str) -> bool:
        """A request has come. Returns whether the model answers it now; otherwise the request waits."""
        resident = self.residents[name]
        resident.use = resident.use.plus_one(now)
        if resident.state is ModelState.LOADED:
            self._begin(resident, user, now)
            return True
        resident.waiting.append((now, user))
        return False

    def leave(self, name: str, arrival: float, user: str) -> None:
        """A waiting request has gone."""
        self.residents[name].waiting.remove((arrival, user))

    def done(self, name: str, now: float, user: str) -> None:
        """A request that the model answered has ended."""
        resident = self.residents[name]
        resident.num_busy -= 1
        resident.last_used = now
        self._accounts.use(user, name, now)

    def pause_s(self, name: str, now: float) -> float:
        """For how long the model will not be loaded, since its process ended by itself."""
        return max(0.0, self.residents[name].not_before - now)

    def _begin(self, resident: Resident, user: str, now: float) -> None:
        resident.num_busy += 1
        resident.last_used = now
        self._accounts.use(user, resident.traits.name, now)

    # ---- processes ----

    def loaded(self, name: str, now: float) -> None:
        """A load has ended well. The waiting requests are answered now."""
        resident = self.residents[name]
        self._learn_pace(max(now - resident.since, 0.001) / resident.traits.load_s)
        resident.is_wanted = resident.traits.is_pinned
        resident.become(ModelState.LOADED, now)
        self._answer_waiting(resident, now)

    def _learn_pace(self, pace: float) -> None:
        """A load's time says more of what else the machine did than of the model, so it counts for all models."""
        self._paces.append(pace)
        for resident in self.residents.values():
            resident.load_s = resident.traits.load_s * statistics.median(self._paces)

    def _answer_waiting(self, resident: Resident, now: float) -> None:
        for _, user in resident.waiting:
            self._begin(resident, user, now)
        resident.waiting.clear()

    def ended(self, name: str, now: float) -> None:
        """A model's process has ended: unloaded, or by itself. A model whose process ended by itself is loaded again
        after a pause, if there is room."""
        resident = self.residents[name]
        if resident.state is not ModelState.UNLOADING:
            is_steady = resident.state is not ModelState.LOADING and now - resident.since > STEADY_S
            resident.num_crashes = 1 if is_steady else resident.num_crashes + 1
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (resident.num_crashes - 1))
            resident.not_before, resident.is_wanted = now + pause_s, True
        resident.become(ModelState.UNLOADED, now)

    # ---- decisions ----

    def decide(self, now: float) -> list[Action]:
        """What to do now. The models' states already say that it is being done."""
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
                    break  # room that becomes free is for this one; a swap that has begun for another ends first
        return actions

    def _room_for(self, resident: Resident) -> int:
        """Memory that the model may take. What a swap makes free is for the swap's model alone."""
        others = self.held_bytes - resident.held_bytes
        if self._swapping_for is not None and self._swapping_for != resident.traits.name:
            others += self.residents[self._swapping_for].need_bytes
        return self.limit_bytes - others

    def _candidates(self, now: float) -> list[Resident]:
        """Models to be loaded: first those with a request that has waited too long, then by time waited. Models that
        only paused users wait for come last."""
        found = [
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

        return sorted(found, key=rank)

    def _is_overdue(self, resident: Resident, now: float) -> bool:
        return now - self._first_arrival(resident, now) >= self.max_wait_s

    def _first_arrival(self, resident: Resident, now: float) -> float:
        """Of the waiting requests whose users are not paused."""
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

    def _unload(self, resident: Resident, now: float) -> UnloadModel:
        assert not resident.num_busy
        assert not resident.traits.is_pinned
        resident.become(ModelState.UNLOADING, now)
        return UnloadModel(resident.traits.name)

    # ---- swaps ----

    def _settle_swap(self, now: float) -> Iterator[ResumeModel]:
        """End a swap whose model is being loaded, or is not asked for any more: then models that drain for it stay."""
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
        """Begin to make room for a model, if no other swap is under way and this one is worth it."""
        if self._swapping_for is not None:
            return []
        victims = self._victims(resident, now)
        if victims is None or not (self._is_overdue(resident, now) or self._pays(resident, victims, now)):
            return []
        self._swapping_for, resident.swap_began = resident.traits.name, now
        self._charge(resident, victims, now)
        for victim in victims:
            victim.state = ModelState.DRAINING  # keeps `since`: it may stay after all
        return [self._unload(victim, now) for victim in victims if not victim.num_busy]

    def _pays(self, resident: Resident, victims: Sequence[Resident], now: float) -> bool:
        claims = [victim for victim in victims if not self._gives_way(victim, resident, now)]
        cost = sum(victim.swap_cost(now) for victim in claims)
        return resident.waited_s(now) >= cost and not any(victim.is_guarded(now) for victim in claims)

    def _gives_way(self, victim: Resident, resident: Resident, now: float) -> bool:
        """Whether only paused users use the victim, and a user who is not paused waits for the model."""
        users = self._accounts.users_of(victim.traits.name, now)
        unpaused = self._accounts.unpaused
        return bool(users) and not unpaused(users, now) and bool(unpaused(resident.users_waiting, now))

    def _charge(self, resident: Resident, victims: Sequence[Resident], now: float) -> None:
        """Charge a swap that takes models from other users: its load and those that bring the models back. It is free
        if a user waits for it whose models do not exceed their share. A pause is not prolonged, so that it ends."""
        users = resident.users_waiting
        taken = [victim for victim in victims if self._accounts.users_of(victim.traits.name, now) - users]
        if taken and all(self._accounts.exceeds_share(user, resident.traits.name, now) for user in users):
            for user in self._accounts.unpaused(users, now):
                self._accounts.charge(user, resident.load_s + sum(victim.load_s for victim in taken), now)

    def _victims(self, resident: Resident, now: float) -> list[Resident] | None:
        """The models of least worth that together leave enough room. Empty: room is already on its way. None: there are
        not enough."""
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
        for victim in chosen[::-1]:  # the last one may have made others unnecessary
            if freed - victim.need_bytes >= missing:
                freed -= victim.need_bytes
                chosen.remove(victim)
        return chosen

    def _is_protected(self, victim: Resident, resident: Resident, now: float) -> bool:
        """Whether users who are not paused use the victim, besides those who wait for the model."""
        others = self._accounts.users_of(victim.traits.name, now) - resident.users_waiting
        return bool(self._accounts.unpaused(others, now))


def check_fit(models: Iterable[ModelTraits], limit_bytes: int) -> None:
    """Raises MemoryError if a model could never be loaded beside the pinned ones."""
    models = list(models)
    pinned = sum(traits.need_bytes for traits in models if traits.is_pinned)
    for traits in models:
        others = pinned - traits.need_bytes * traits.is_pinned
        if traits.need_bytes + others > limit_bytes:
            beside = f" beside the pinned models' {others >> 20}" if others else ""
            raise MemoryError(
                f"{traits.name} needs {traits.need_bytes >> 20} MiB{beside}, and {limit_bytes >> 20} MiB are there: "
                + ", or ".join(_remedies(traits, others, limit_bytes))
            )


def _remedies(traits: ModelTraits, others: int, limit_bytes: int) -> Iterator[str]:
    """What would make room for a model, each alone."""
    if traits.need_bytes + others - limit_bytes < traits.kv_bytes:
        yield "lower its context or kv-memory"
    if others and traits.need_bytes <= limit_bytes:
        yield "pin fewer models"
    yield "leave it out"
