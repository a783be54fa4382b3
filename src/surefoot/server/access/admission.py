"""Admission: before any work is done for it, a request gets a place in the queue and is charged to its key's rates."""

from surefoot.server.access.keys import Caller
from surefoot.server.access.shares import SharedBudget, asking_user
from surefoot.server.errors import ApiError, too_many

SMOOTHING = 0.1  # weight of the newest duration in the running mean


class Admission:
    """The places of all requests that have not ended, running and waiting."""

    def __init__(self, max_queue: int) -> None:
        self._places = SharedBudget(max_queue)
        self._mean_s = 1.0  # running mean of requests' durations, for Retry-After

    @property
    def num_requests(self) -> int:
        return self._places.num_held

    def admit(self, caller: Caller) -> "Ticket":
        """Raises ApiError if the queue or the caller's share of it is full, or a rate is used up."""
        if not self._places.take(caller.user):
            own = self._places.held_by(caller.user)
            message = f"{self.num_requests} requests are in the queue, {own} of them yours"
            raise too_many(message, self._mean_s, "queue_full")
        try:
            _charge(caller)
        except ApiError:
            self.release(caller)
            raise
        asking_user.set(caller.user)
        return Ticket(self, caller)

    def release(self, caller: Caller) -> None:
        self._places.give_back(caller.user)

    def observe(self, duration_s: float) -> None:
        """A request has ended after this time."""
        self._mean_s += SMOOTHING * (duration_s - self._mean_s)


class Ticket:
    """A place in the queue, released once: at the end of its `with` block, or by the run that took it over."""

    def __init__(self, admission: Admission, caller: Caller) -> None:
        self.caller = caller
        self.is_taken_over = False
        self._admission = admission
        self._is_open = True

    def release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._admission.release(self.caller)

    def __enter__(self) -> "Ticket":
        return self

    def __exit__(self, *error: object) -> None:
        if not self.is_taken_over:
            self.release()


def _charge(caller: Caller) -> None:
    """Charge one request to the caller's rates. Tokens are charged when the request ends; a used-up rate refuses it
    now."""
    if caller.requests is not None:
        if wait_s := caller.requests.wait_s(1):
            raise too_many("more requests than your key allows in a minute", wait_s)
        caller.requests.take(1)
    if caller.tokens is not None and (wait_s := caller.tokens.wait_s(1)):
        raise too_many("more tokens than your key allows in a minute", wait_s)
