"""Names that stand for several models: which of them answers a request, by rules on the request and by a cascade.

[[route]]
name = "auto"
models = ["small", "chat"]    # asked in this order; the first that is sure of its answer gives it, else the last
sure = {tokens = 24, mean-logprob = -0.4}

[[route.rule]]                # the first whose conditions all hold names the only model
model = "chat"
tools = true

A model may be an upstream, a server elsewhere (`front/sensitivity.py`): a request that may not leave skips it.
"""

import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Send

from surefoot.server.access.shares import Caller
from surefoot.server.access.sure_check import SureRule, confidence_in
from surefoot.server.bodies import parse_json
from surefoot.server.errors import ApiError

ROUTE_HEADER = "x-surefoot-route"  # of a request: the model to be used; of a reply: which model answered, and why
RESUMED_HEADER = "last-event-id"
FIRST_CHARACTERS = 256  # of a prompt, by which requests for its continuations are known
GENERATING = (
    "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/infill", "/api/chat", "/api/generate",
)  # fmt: skip


@dataclass(frozen=True)
class AskedFor:
    """What a body says that decides which model answers it, and which copy of that model."""

    model: str | None = None
    num_bytes: int = 0
    tools: bool = False
    schema: bool = False
    beginning: int = 0  # the same for all requests of a conversation

    @classmethod
    def of(cls, given: Mapping[str, Any], num_bytes: int) -> "AskedFor":
        name = given.get("model") or given.get("name")  # the latter in Ollama's /api/show
        named = name if isinstance(name, str) else None
        return cls(named, num_bytes, bool(given.get("tools")), _has_schema(given), _beginning(given))


def _beginning(given: Mapping[str, Any]) -> int:
    """Of what stands before the first answer."""
    turns = given.get("messages") or given.get("input") or given.get("prompt")
    if isinstance(turns, list):
        turns = [*takewhile(lambda turn: not (isinstance(turn, dict) and turn.get("role") == "assistant"), turns)]
    first = turns[:FIRST_CHARACTERS] if isinstance(turns, str) else turns
    return zlib.crc32(json.dumps(first).encode()) if turns else 0


def object_in(body: bytes) -> Mapping[str, Any]:
    """Of a body that is no JSON object nothing is known; its route then says why."""
    try:
        given: Any = parse_json(body)
    except ApiError:
        given = None
    return given if isinstance(given, dict) else {}


def _has_schema(given: Mapping[str, Any]) -> bool:
    """In the words of OpenAI's chat, of its responses, of Ollama."""
    text = given.get("text")
    formats = (given.get("response_format"), text.get("format") if isinstance(text, dict) else None)
    typed = any(isinstance(form, dict) and form.get("type") != "text" for form in formats)
    return typed or bool(given.get("format") or given.get("grammar"))


@dataclass(frozen=True)
class RouteRule:
    """Conditions on a request, which must all hold, and the model that then answers."""

    model: str
    longer_than: int | None = None  # bytes of the body
    tools: bool | None = None
    schema: bool | None = None
    users: tuple[str, ...] = ()  # users or names of keys
    headers: Mapping[str, str] = field(default_factory=dict)

    def holds(self, asked: AskedFor, caller: Caller, headers: Headers) -> bool:
        return (
            (self.longer_than is None or asked.num_bytes > self.longer_than)
            and (self.tools is None or self.tools == asked.tools)
            and (self.schema is None or self.schema == asked.schema)
            and (not self.users or caller.user in self.users or caller.key in self.users)
            and all(headers.get(name) == value for name, value in self.headers.items())
        )


@dataclass(frozen=True)
class Route:
    name: str
    models: tuple[str, ...]  # at least one; the last is no upstream
    sure: SureRule | None = None  # given if one of this server's models may decline
    rules: tuple[RouteRule, ...] = ()
    upstreams: frozenset[str] = frozenset()  # names of these that are upstreams

    @property
    def targets(self) -> frozenset[str]:
        """This server's models."""
        return frozenset((*self.models, *(rule.model for rule in self.rules))) - self.upstreams

    @property
    def first(self) -> str:
        return next(model for model in self.models if model not in self.upstreams)

    def plan(self, path: str, asked: AskedFor, caller: Caller, headers: Headers) -> "RoutePlan":
        """Raises ApiError if a header asks for a model that the route does not have."""
        if (forced := headers.get(ROUTE_HEADER)) is not None:
            if forced not in self.targets | self.upstreams:
                known = ", ".join(sorted(self.targets | self.upstreams))
                raise ApiError(400, f"{ROUTE_HEADER}: {self.name!r} has no model {forced[:80]!r}: use one of {known}")
            return self._plan(self._only(forced), "asked for")
        for number, rule in enumerate(self.rules, 1):
            if rule.holds(asked, caller, headers):
                return self._plan(self._only(rule.model), f"rule {number}")
        if path not in GENERATING:
            return self._plan((self.first,), "first")
        return self._plan(self.models, "last" if len(self.models) > 1 else "only")

    def _only(self, model: str) -> tuple[str, ...]:
        """Where a request goes that an upstream was to answer, if it stays or the upstream fails: the last model."""
        return (model, self.models[-1]) if model in self.upstreams else (model,)

    def _plan(self, models: tuple[str, ...], why: str) -> "RoutePlan":
        return RoutePlan(self.name, models, why, self.sure if len(models) > 1 else None, self.upstreams)


@dataclass(frozen=True)
class RoutePlan:
    """The models to ask for one request, in this order, by their numbers in it. All but the last may decline."""

    route: str  # empty: the request named a model
    models: tuple[str, ...]
    why: str = ""  # the last answers
    sure: SureRule | None = None
    upstreams: frozenset[str] = frozenset()  # names of the route's models that are elsewhere

    def is_last(self, number: int) -> bool:
        return number == len(self.models) - 1

    def why_of(self, number: int) -> str:
        """Why this model answers."""
        if self.is_last(number):
            return self.why
        return "upstream" if self.models[number] in self.upstreams else "sure"

    def rule_for(self, number: int) -> SureRule | None:
        return None if self.is_last(number) else self.sure

    def without(self, upstreams: Collection[str]) -> "RoutePlan":
        """The plan without these. A model that would then be asked twice in a row is asked once."""
        left = (model for model in self.models if model not in upstreams)
        return replace(self, models=tuple(model for model, _ in groupby(left)))


@dataclass
class RoutedReplies:
    """Passes on the reply of the first model that does not decline, with a header that says which and why."""

    plan: RoutePlan
    is_resumed: bool  # a stream that another of the models may have begun
    scores: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # of the models that were asked
    rules: dict[str, str] = field(default_factory=dict)  # by which requests left for upstreams or stayed

    def declines(self, number: int, status: int, headers: Headers) -> bool:
        """Whether another model is to be asked."""
        confidence = confidence_in(headers)
        if confidence is not None:
            self.scores[self.plan.models[number]] = confidence
        if self.plan.is_last(number):
            return False
        return not confidence["is_sure"] if confidence is not None else self.is_resumed and status == 400

    def told(self, number: int) -> str:
        told = {"route": self.plan.route, "model": self.plan.models[number], "why": self.plan.why_of(number)}
        return json.dumps({**told, "scores": self.scores, **({"upstreams": self.rules} if self.rules else {})})


@dataclass
class ReplyReceiver:
    """An ASGI `send` for the reply of one model."""

    replies: RoutedReplies
    number: int  # of the model, in the plan
    send: Send
    has_declined: bool = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self.replies.plan.route:
            headers = MutableHeaders(scope=message)
            self.has_declined = self.replies.declines(self.number, message["status"], headers)
            headers[ROUTE_HEADER] = self.replies.told(self.number)
        if not self.has_declined:
            await self.send(message)
