"""Who is next for prompt tokens: by band, then by what their user has had, then short before long; and in turn."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import zip_longest

from surefoot.core import ServiceClass
from surefoot.scheduler.heap import LazyHeap
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.users import User


class FairQueue:
    """Samples of one band that have prompt tokens to compute, whether they wait or have begun."""

    def __init__(self) -> None:
        self._users: LazyHeap[User] = LazyHeap()  # by a counter that may be out of date: it only grows
        self._samples: dict[User, LazyHeap[Sample]] = {}

    def __len__(self) -> int:
        return len(self._users)

    def __iter__(self) -> Iterator[Sample]:
        return (sample for queue in self._samples.values() for sample in queue)

    def add(self, sample: Sample) -> None:
        queue = self._samples.get(sample.user)
        if queue is None:
            queue = self._samples[sample.user] = LazyHeap()
            self._users.push(sample.user.counter, sample.user)
        queue.push(sample.tag, sample)

    def remove(self, sample: Sample) -> None:
        """Nothing happens if it is not there."""
        queue = self._samples.get(sample.user)
        if queue is None:
            return
        queue.discard(sample)
        if not queue:
            del self._samples[sample.user]
            self._users.discard(sample.user)

    def candidates(self, most: int, slack: float) -> list[Sample]:
        """The first in order, with those so close behind that they are its equals: one of each user before a second."""
        asked: list[User] = []
        while len(asked) < most and (user := self._next_user()) is not None:
            if asked and user.counter > asked[0].counter + slack:
                break
            asked.append(user)
            self._users.discard(user)
        for user in asked:
            self._users.push(user.counter, user)
        most_of_one = most - len(asked) + 1
        in_rounds = zip_longest(*(self._first_of(user, most_of_one, slack) for user in asked))
        return [sample for round in in_rounds for sample in round if sample is not None][:most]

    def _next_user(self) -> User | None:
        while (first := self._users.peek()) is not None:
            counter, user = first
            if user.counter == counter:
                return user
            self._users.push(user.counter, user)
        return None

    def _first_of(self, user: User, most: int, slack: float) -> list[Sample]:
        entries = self._samples[user].smallest(most)
        return [sample for tag, sample in entries if tag <= entries[0][0] + slack]


class TurnQueue:
    """Waiting samples in turns: users one after the other, each with the sample that has waited longest.

    A user who starts to wait, or has had the turn, stands behind all users who wait already. So nobody who comes later
    can delay a sample's turn, however many they are and whatever their priority.
    """

    def __init__(self) -> None:
        self._users: OrderedDict[User, LazyHeap[Sample]] = OrderedDict()
        self._num_samples = 0

    def __len__(self) -> int:
        return self._num_samples

    def __iter__(self) -> Iterator[Sample]:
        return (sample for queue in self._users.values() for sample in queue)

    def add(self, sample: Sample) -> None:
        if sample.user not in self._users:
            self._users[sample.user] = LazyHeap()
        self._users[sample.user].push(sample.age, sample)
        self._num_samples += 1

    def remove(self, sample: Sample) -> None:
        queue = self._users[sample.user]
        queue.discard(sample)
        self._num_samples -= 1
        if not queue:
            del self._users[sample.user]

    def first(self) -> Sample | None:
        queue = next(iter(self._users.values()), None)
        entry = queue.peek() if queue is not None else None
        return entry[1] if entry is not None else None

    def end_turn(self, user: User) -> None:
        if user in self._users:
            self._users.move_to_end(user)


class Pending:
    """All samples with prompt tokens to compute, in both orders."""

    def __init__(self) -> None:
        self._bands: dict[tuple[int, int], FairQueue] = {}
        self._passed_over: dict[Sample, None] = {}  # in this step, in order
        self.turns = TurnQueue()

    def __bool__(self) -> bool:
        return bool(self._bands or self._passed_over)

    def __iter__(self) -> Iterator[Sample]:
        return (sample for band in self._bands.values() for sample in band)

    @property
    def is_waited_for(self) -> bool:
        """Whether any of them is interactive."""
        return bool(self._bands) and min(self._bands)[0] is ServiceClass.INTERACTIVE

    def wait(self, sample: Sample) -> None:
        self.turns.add(sample)
        self.show(sample)

    def admit(self, sample: Sample) -> None:
        """It no longer waits, but still has tokens to compute."""
        self.turns.remove(sample)

    def remove(self, sample: Sample) -> None:
        """It has been admitted, and has nothing more to compute here or has ended."""
        self.hide(sample)

    def show(self, sample: Sample) -> None:
        band = self._bands.get(sample.band)
        if band is None:
            band = self._bands[sample.band] = FairQueue()
        band.add(sample)

    def hide(self, sample: Sample) -> None:
        """No candidate until it is shown again."""
        band = self._bands.get(sample.band)
        if band is not None:
            band.remove(sample)
            if not band:
                del self._bands[sample.band]

    def pass_over(self, sample: Sample) -> None:
        """No candidate for the rest of this step."""
        self._passed_over[sample] = None
        self.hide(sample)

    def is_passed_over(self, sample: Sample) -> bool:
        return sample in self._passed_over

    def show_passed_over(self) -> None:
        """At the step's end: those that still have tokens to compute, in the order they came."""
        for sample in self._passed_over:
            if sample.state in (State.WAITING, State.PREFILLING):
                self.show(sample)
        self._passed_over.clear()

    def candidates(self, most: int, slack: float) -> list[Sample]:
        """Equals at the head of the first band that has any."""
        return self._bands[min(self._bands)].candidates(most, slack) if self._bands else []
