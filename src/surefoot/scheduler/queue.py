"""Samples with prompt tokens to compute, in two orders: by precedence and fair share, and by waiting time."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import zip_longest

from surefoot.core import ServiceClass
from surefoot.scheduler.heap import LazyHeap
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.users import User


class FairQueue:
    """Samples of one precedence with prompt tokens to compute, waiting or running: the user with the lowest counter
    first, of their samples the one with the lowest tag."""

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
        """Does nothing if it is not there."""
        queue = self._samples.get(sample.user)
        if queue is None:
            return
        queue.discard(sample)
        if not queue:
            del self._samples[sample.user]
            self._users.discard(sample.user)

    def candidates(self, most: int, slack: float) -> list[Sample]:
        """The first in order and its equals, which are at most `slack` behind: one of each user before a second."""
        users: list[User] = []
        while len(users) < most and (user := self._next_user()) is not None:
            if users and user.counter > users[0].counter + slack:
                break
            users.append(user)
            self._users.discard(user)
        for user in users:
            self._users.push(user.counter, user)
        most_of_one = most - len(users) + 1
        in_rounds = zip_longest(*(self._first_of(user, most_of_one, slack) for user in users))
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
    """Waiting samples in turns: a ring of users, each with the sample that has waited longest.

    A user who starts to wait, or has had a turn, goes behind all users who wait already. So later requests cannot
    delay a sample's turn, whatever their number and priority.
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


class PromptQueue:
    """All samples with prompt tokens to compute, in both orders."""

    def __init__(self) -> None:
        self._levels: dict[tuple[int, int], FairQueue] = {}  # by precedence
        self._skipped: dict[Sample, None] = {}  # in this step, in order
        self.turns = TurnQueue()

    def __bool__(self) -> bool:
        return bool(self._levels or self._skipped)

    def __iter__(self) -> Iterator[Sample]:
        return (sample for level in self._levels.values() for sample in level)

    @property
    def is_interactive(self) -> bool:
        """Whether any of the samples is."""
        return bool(self._levels) and min(self._levels)[0] is ServiceClass.INTERACTIVE

    def wait(self, sample: Sample) -> None:
        self.turns.add(sample)
        self._show(sample)

    def admit(self, sample: Sample) -> None:
        """It no longer waits, but still has prompt tokens to compute."""
        self.turns.remove(sample)

    def _show(self, sample: Sample) -> None:
        level = self._levels.get(sample.precedence)
        if level is None:
            level = self._levels[sample.precedence] = FairQueue()
        level.add(sample)

    def remove(self, sample: Sample) -> None:
        """Of a sample that was admitted: it has no more prompt tokens to compute, or has ended."""
        level = self._levels.get(sample.precedence)
        if level is not None:
            level.remove(sample)
            if not level:
                del self._levels[sample.precedence]

    def skip(self, sample: Sample) -> None:
        """No candidate for the rest of this step."""
        self._skipped[sample] = None
        self.remove(sample)

    def is_skipped(self, sample: Sample) -> bool:
        return sample in self._skipped

    def restore_skipped(self) -> None:
        """At the end of a step: the samples that still have prompt tokens to compute, in the order they came."""
        for sample in self._skipped:
            if sample.state in (State.WAITING, State.PREFILLING):
                self._show(sample)
        self._skipped.clear()

    def candidates(self, most: int, slack: float) -> list[Sample]:
        """Equals at the head of the first level."""
        return self._levels[min(self._levels)].candidates(most, slack) if self._levels else []
