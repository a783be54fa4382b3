"""Who runs: the rows that are taken, and what the next plan says of them."""

from surefoot.core import RowStart, SampleKey, ServiceClass
from surefoot.scheduler.queue import Pending
from surefoot.scheduler.sample import Sample, State


class Rows:
    """A sample takes one; while it stands for all n of its request, n are promised."""

    def __init__(self, num_rows: int, pending: Pending) -> None:
        self.num_rows = num_rows
        self.num_taken = 0  # or promised
        self.prefilling: dict[Sample, None] = {}  # in the order of admission
        self.decoding: dict[Sample, None] = {}
        self.num_unhurried = 0  # samples of the class that nobody waits for
        self._pending = pending
        self._starts: dict[SampleKey, Sample] = {}  # that the next plan announces
        self._ends: list[SampleKey] = []

    @property
    def running(self) -> list[Sample]:
        return [*self.decoding, *self.prefilling]

    @property
    def are_all_taken(self) -> bool:
        return self.num_taken >= self.num_rows

    def has_room(self, sample: Sample) -> bool:
        return self.num_taken + len(sample.covers) <= self.num_rows

    def admit(self, sample: Sample) -> None:
        self._pending.admit(sample)
        self.prefilling[sample] = None
        self._enter(sample, State.PREFILLING)
        self.num_taken += len(sample.covers)
        sample.user.num_rows += len(sample.covers)

    def start_decoding(self, sample: Sample) -> None:
        """Its prompt has been read."""
        self._pending.remove(sample)
        del self.prefilling[sample]
        self.decoding[sample] = None
        sample.state = State.DECODING

    def add_fork(self, sample: Sample) -> None:
        """It takes a row that was promised."""
        self.decoding[sample] = None
        self._enter(sample, State.DECODING)

    def _enter(self, sample: Sample, state: State) -> None:
        sample.state = state
        self.num_unhurried += is_unhurried(sample)
        self._starts[sample.key] = sample

    def leave(self, sample: Sample) -> None:
        """Out of whatever it is in: row, queues."""
        if sample.state is State.WAITING:
            self._pending.admit(sample)
            self._pending.remove(sample)
            return
        if sample.state is State.PREFILLING:
            self._pending.remove(sample)
            del self.prefilling[sample]
        else:
            del self.decoding[sample]
        self.num_taken -= len(sample.covers)
        self.num_unhurried -= is_unhurried(sample)
        sample.user.num_rows -= len(sample.covers)
        if self._starts.pop(sample.key, None) is None:
            self._ends.append(sample.key)

    def announce(self) -> tuple[list[RowStart], list[SampleKey]]:
        """Those that started and those that ended since the last plan."""
        starts = [RowStart(key, sample.request, tuple(sample.tokens)) for key, sample in self._starts.items()]
        ends, self._ends = self._ends, []
        self._starts = {}
        return starts, ends

    def audit(self, samples: list[Sample]) -> None:
        """samples: all that have not ended."""
        running = [sample for sample in samples if sample.state is not State.WAITING]
        assert {sample for sample in running if sample.state is State.PREFILLING} == set(self.prefilling)
        assert {sample for sample in running if sample.state is State.DECODING} == set(self.decoding)
        assert self.num_taken == sum(len(sample.covers) for sample in running) <= self.num_rows
        assert self.num_unhurried == sum(map(is_unhurried, running))
        assert self._starts.keys() <= {sample.key for sample in running}
        for user in {sample.user for sample in samples}:
            assert user.num_rows == sum(len(sample.covers) for sample in running if sample.user is user)


def is_unhurried(sample: Sample) -> bool:
    return sample.request.service is ServiceClass.BATCH
