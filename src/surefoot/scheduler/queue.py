"""Queues of samples with prompt tokens to compute: by precedence and fair share, and by waiting time."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import zip_longest

from surefoot.core import ServiceClass
from surefoot.scheduler.sample import LazyHeap, Sample, State, User


class FairQueue:
    """Samples of one precedence with prompt tokens to compute, waiting or running.

    The user with the lowest counter comes first; of their samples, the one with the lowest tag.
    """

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
        """Does nothing if the sample is not in the queue."""
        queue = self._samples.get(sample.user)
        if queue is None:
            return
        queue.discard(sample)
        if not queue:
            del self._samples[sample.user]
            self._users.discard(sample.user)

    def candidates(self, limit: int, slack: float) -> list[Sample]:
        """The first sample and its equals, which are at most `slack` tokens behind; one per user before a second."""
        users: list[User] = []
        while len(users) < limit and (user := self._next_user()) is not None:
            if users and user.counter > users[0].counter + slack:
                break
            users.append(user)
            self._users.discard(user)
        for user in users:
            self._users.push(user.counter, user)
        user_limit = limit - len(users) + 1
        rounds = zip_longest(*(self._user_candidates(user, user_limit, slack) for user in users))
        return [sample for samples in rounds for sample in samples if sample is not None][:limit]

    def _next_user(self) -> User | None:
        while (first := self._users.peek()) is not None:
            counter, user = first
            if user.counter == counter:
                return user
            self._users.push(user.counter, user)
        return None

    def _user_candidates(self, user: User, limit: int, slack: float) -> list[Sample]:
        entries = self._samples[user].smallest(limit)
        return [sample for tag, sample in entries if tag <= entries[0][0] + slack]


class RoundRobinQueue:
    """Waiting samples, round robin over users; of a user's samples, the one that has waited longest comes first.

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

    def move_to_back(self, user: User) -> None:
        if user in self._users:
            self._users.move_to_end(user)


class PromptQueue:
    """All samples with prompt tokens to compute; `waiting` has those without a row."""

    def __init__(self) -> None:
        self._levels: dict[tuple[int, int], FairQueue] = {}  # by precedence
        self._skipped: dict[Sample, None] = {}  # no candidates for the rest of the step; in order
        self.waiting = RoundRobinQueue()

    def __bool__(self) -> bool:
        return bool(self._levels or self._skipped)

    def __iter__(self) -> Iterator[Sample]:
        return (sample for level in self._levels.values() for sample in level)

    @property
    def is_interactive(self) -> bool:
        """Whether any sample is interactive."""
        return bool(self._levels) and min(self._levels)[0] is ServiceClass.INTERACTIVE

    def enqueue(self, sample: Sample) -> None:
        self.waiting.add(sample)
        self._offer(sample)

    def admit(self, sample: Sample) -> None:
        """The sample no longer waits, but still has prompt tokens to compute."""
        self.waiting.remove(sample)

    def _offer(self, sample: Sample) -> None:
        level = self._levels.get(sample.precedence)
        if level is None:
            level = self._levels[sample.precedence] = FairQueue()
        level.add(sample)

    def remove(self, sample: Sample) -> None:
        """Remove an admitted sample that has no more prompt tokens to compute, or has ended."""
        level = self._levels.get(sample.precedence)
        if level is not None:
            level.remove(sample)
            if not level:
                del self._levels[sample.precedence]

    def skip(self, sample: Sample) -> None:
        """The sample is no candidate for the rest of this step."""
        self._skipped[sample] = None
        self.remove(sample)

    def is_skipped(self, sample: Sample) -> bool:
        return sample in self._skipped

    def restore_skipped(self) -> None:
        """At the end of a step: put back skipped samples that still have prompt tokens to compute."""
        for sample in self._skipped:
            if sample.state in (State.WAITING, State.PREFILLING):
                self._offer(sample)
        self._skipped.clear()

    def candidates(self, limit: int, slack: float) -> list[Sample]:
        """At most `limit` equals at the head of the first level."""
        return self._levels[min(self._levels)].candidates(limit, slack) if self._levels else []
