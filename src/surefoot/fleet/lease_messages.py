"""What a fleet's gateways say to the server that keeps their clients' rates, and what it answers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

LEASES_PATH = "/fleet/leases"
MOST_RATES = 20_000  # in one question
MOST_LEASE_BYTES = MOST_RATES * 200
MOST_REPLY_BYTES = 16 << 20  # it has the limits of all keys

Amount = Annotated[float, Field(allow_inf_nan=False)]
Granted = Annotated[float, Field(ge=0, le=1e12)]
RateName = Annotated[str, Field(max_length=256)]


class LeaseHolding(BaseModel):
    """A gateway's account of one rate. Spending lowers what it holds; returning lowers both."""

    model_config = ConfigDict(frozen=True)

    granted: Amount  # in all, less what was returned
    held: Amount  # of that, not spent; below 0: a debt
    is_wanted: bool = True  # False: the gateway has not used the rate lately


class LeaseQuestion(BaseModel):
    """A gateway tells all rates that it uses, and asks for more of them."""

    gateway: Annotated[str, Field(max_length=64)]  # differs after a restart
    number: int  # higher in each question
    limits: Annotated[str, Field(max_length=64)] = ""  # version that it knows
    holdings: Annotated[dict[str, LeaseHolding], Field(max_length=MOST_RATES)] = {}


class LeaseGrant(BaseModel):
    """The answer for one rate."""

    model_config = ConfigDict(frozen=True)

    amount: Granted  # more to hold
    target: Granted  # what lies above it should be returned


class KeeperStatus(BaseModel):
    """What the keeper tells of itself, for people to read."""

    model_config = ConfigDict(frozen=True)

    seconds: Granted  # for which it has kept rates
    num_users: Annotated[int, Field(ge=0)]  # of whose rates gateways hold a part
    num_gateways: Annotated[int, Field(ge=0)]


class LeaseReply(BaseModel):
    limits: Annotated[str, Field(max_length=64)]  # version
    per_minute: dict[RateName, Annotated[float, Field(gt=0, le=1e12)]] | None = None  # by rate; None: it knows them
    grants: Annotated[dict[RateName, LeaseGrant], Field(max_length=MOST_RATES)] = {}
    status: KeeperStatus | None = None  # None: the server's version does not tell
