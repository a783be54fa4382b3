"""Making way: who goes back to wait so that another gets blocks, or a row."""

from surefoot.core import ServiceClass
from surefoot.scheduler.charges import Charges
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.queue import Pending
from surefoot.scheduler.room import Room
from surefoot.scheduler.rows import Rows, is_unhurried
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.step import Step
from surefoot.scheduler.users import Users


class MakingWay:
    """Blocks go by rank (the least urgent, then the youngest, gives way), rows by what each user holds of them."""

    def __init__(
        self, config: SchedulerConfig, users: Users, pending: Pending, rows: Rows, room: Room, charges: Charges
    ) -> None:
        self.num_preemptions = 0
        self._config = config
        self._users = users
        self._pending = pending
        self._rows = rows
        self._room = room
        self._charges = charges

    def give_way(self, sample: Sample, in_step: Step | None = None) -> None:
        """Preempt: back to wait, without blocks."""
        self._rows.leave(sample)
        self._room.release(sample)
        self._charges.output(sample)
        sample.state = State.WAITING
        sample.drafts = ()
        self._pending.wait(sample)
        self.num_preemptions += 1
        if in_step is not None:
            in_step.preempted.add(sample)
            self._pending.pass_over(sample)

    # ---- blocks ----

    def grow_by_force(self, step: Step, sample: Sample, num_tokens: int) -> bool:
        """Others give way until there is room: never the eldest, and none who would go before this one."""
        while not self._room.grow(step, sample, num_tokens):
            victim = self._next_victim(step)
            if victim is None or (sample is not step.eldest and victim.rank <= sample.rank):
                return False
            self.give_way(victim, step)
        return True

    def _next_victim(self, step: Step) -> Sample | None:
        if step.victims is None:
            running = self._rows.running
            step.eldest = min(running, key=lambda sample: sample.age)
            step.victims = sorted((one for one in running if one is not step.eldest), key=lambda one: one.rank)
        while step.victims and step.victims[-1].state in (State.WAITING, State.ENDED):
            step.victims.pop()
        return step.victims[-1] if step.victims else None

    # ---- rows ----

    def free_row(self, step: Step) -> Sample | None:
        """Where all rows are taken: somebody who waits and would hold at most half of their part of the rows (or one)
        gets one of a user's who holds more than theirs, and whoever is waited for gets one of those who are not. Half:
        between users who always have work the order of admission decides, and nobody is sent to and fro.

        Returns the sample that there is room for now."""
        if not self._rows.are_all_taken or not self._pending.turns:
            return None
        for owed in self._pending.candidates(self._config.num_candidates, self._config.slack_tokens):
            if owed.state is not State.WAITING:
                continue
            while (victim := self._who_yields(owed)) is not None and self._room.is_enough(owed):
                self.give_way(victim, step)
                if self._rows.has_room(owed):
                    return owed
        return None

    def _who_yields(self, owed: Sample) -> Sample | None:
        """The youngest, never a user's eldest: so that everybody goes on."""
        num_rows = self._rows.num_rows
        if owed.request.service is ServiceClass.INTERACTIVE and self._rows.num_unhurried > 1:
            return max(filter(is_unhurried, self._rows.running), key=lambda one: one.age)
        if owed.user.num_rows + len(owed.covers) > max(1.0, self._users.part(owed.user, num_rows) / 2):
            return None
        user = self._users.largest_holder()
        if user.num_rows <= max(1.0, self._users.part(user, num_rows)):
            return None
        own = sorted((one for one in self._rows.running if one.user is user), key=lambda one: one.age)
        return own[-1] if len(own) > 1 and own[-1].band >= owed.band else None
