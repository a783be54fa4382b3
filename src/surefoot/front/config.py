"""The models behind the front process: names, files and options, from the command line or a TOML file.

memory = "20GB"                # limit for all models together; default: that of the machine or its cgroup
max-wait = "30s"               # a request that has waited this long gets its model loaded next
private-patterns = ["(?i)confidential"]  # a request with a match goes to no upstream

[[model]]
name = "chat"                  # default: the file's name
file = "qwen3:4b"              # as for `surefoot serve`
aliases = ["gpt-4o"]
context = 16384
draft = "qwen3:0.6b"
keep-alive = "30m"             # unloaded after this time without requests; default: when memory is needed
pinned = true
users = ["alice", "ops"]       # users or names of keys; default: all users

[[upstream]]                   # a server elsewhere, which routes may name
name = "elsewhere"
url = "https://api.example.org/v1"
model = "large-1"              # its name there
allows = "public"              # the most private that leaves: public or internal, as the request declares
key-env = "ELSEWHERE_KEY"      # the environment variable with the key; default: none is sent
timeout = "60s"                # the longest pause in its reply
price-in = 2.5                 # of a million prompt tokens, in any currency; without prices it costs nothing
price-out = 10.0               # of a million tokens of answers
longest-answer = 8192          # tokens, of a request that names no limit; default: such a request stays

[[route]] is described in `front/routing.py`.
"""

import tomllib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from surefoot.api.footprint import ModelOptions
from surefoot.front.patterns import PrivatePatterns
from surefoot.front.prices import Price
from surefoot.front.routing import Route, RouteRule
from surefoot.front.sensitivity import SENSITIVITIES, Upstream
from surefoot.front.usage import MOST_COUNT
from surefoot.machine import NodeShare
from surefoot.machine.sizes import duration_s, size_bytes
from surefoot.server.access.sure_check import SureRule
from surefoot.server.errors import first_fault

MOST_MODELS = 8  # of a route
MOST_PATTERNS, MOST_PATTERN_CHARACTERS = 64, 1024
LARGEST_PRICE = 1e6  # of a million tokens
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^\S+$")]
Size = Annotated[
    int, BeforeValidator(lambda given: size_bytes(given) if isinstance(given, str) else given), Field(ge=1)
]
Duration = Annotated[
    float, BeforeValidator(lambda given: duration_s(given) if isinstance(given, str) else given), Field(ge=0)
]


class FrontConfigError(ValueError):
    """The configuration is invalid; the message says why."""


@dataclass(frozen=True)
class ModelEntry:
    """One model that clients may ask for."""

    name: str
    file: str
    aliases: tuple[str, ...] = ()
    options: ModelOptions = field(default_factory=ModelOptions)
    keep_alive_s: float | None = None  # unloaded after this time without requests; None: when memory is needed
    is_pinned: bool = False
    users: tuple[str, ...] = ()  # users or names of keys that may use it; empty: all users
    node: NodeShare | None = None  # whose processors its process has; None: all processors
    copy: int = 0  # of several processes of one model, which share its requests

    @property
    def key(self) -> str:
        """Names its process. `name` is that of all copies."""
        return f"{self.name} ({self.copy + 1})" if self.copy else self.name

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    def admits(self, user: str, key: str) -> bool:
        return not self.users or user in self.users or key in self.users


@dataclass(frozen=True)
class FrontConfig:
    """All models, and the limits that they share."""

    models: tuple[ModelEntry, ...]
    memory_bytes: int | None = None  # None: the limit of the machine or its cgroup
    max_wait_s: float | None = None
    routes: tuple[Route, ...] = ()
    upstreams: tuple[Upstream, ...] = ()
    private_patterns: tuple[str, ...] = ()


def on_each_node(entry: ModelEntry, shares: Sequence[NodeShare]) -> tuple[ModelEntry, ...]:
    """A copy of the model on each NUMA node, loaded at the start."""
    return tuple(replace(entry, node=share, copy=number, is_pinned=True) for number, share in enumerate(shares))


class _Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid", alias_generator=lambda name: name.replace("_", "-"), populate_by_name=False, allow_inf_nan=False
    )


class ModelTable(_Table):
    file: str
    name: Name | None = None
    aliases: list[Name] = []
    format: str | None = None
    context: Annotated[int | None, Field(ge=1)] = None
    max_running: Annotated[int | None, Field(ge=1)] = None
    draft: str | None = None
    kv_memory: Size | None = None
    pooling: str | None = None
    adapter: str | None = None
    chat_template: str | None = None
    sampling: dict[str, float | int] = {}
    keep_alive: Duration | None = None
    pinned: bool = False
    users: list[str] = []

    def options(self, defaults: ModelOptions) -> ModelOptions:
        given = {
            "float_format": self.format,
            "max_context": self.context,
            "max_running": self.max_running,
            "speculate": f"draft:{self.draft}" if self.draft is not None else None,
            "kv_bytes": self.kv_memory,
            "pooling": self.pooling,
            "adapter": self.adapter,
            "chat_template": self.chat_template,
            "sampling": tuple(f"{key}={value}" for key, value in self.sampling.items()) or None,
        }
        return replace(defaults, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]

    def entry(self, defaults: ModelOptions, keep_alive_s: float | None, default_name: str) -> ModelEntry:
        return ModelEntry(
            name=self.name or default_name, file=self.file, aliases=tuple(self.aliases),
            options=self.options(defaults), is_pinned=self.pinned, users=tuple(self.users),
            keep_alive_s=self.keep_alive if self.keep_alive is not None else keep_alive_s,
        )  # fmt: skip


class RuleTable(_Table):
    model: Name
    longer_than: Size | None = None
    tools: bool | None = None
    schema_: Annotated[bool | None, Field(alias="schema")] = None
    users: list[str] = []
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _has_condition(self) -> "RuleTable":
        if self.model_fields_set <= {"model"}:
            raise ValueError("give a condition: longer-than, tools, schema, users or headers")
        return self

    def rule(self) -> RouteRule:
        return RouteRule(self.model, self.longer_than, self.tools, self.schema_, tuple(self.users), self.headers)


class RouteTable(_Table):
    name: Name
    models: Annotated[list[Name], Field(min_length=1, max_length=MOST_MODELS)]
    sure: SureRule | None = None
    rule: list[RuleTable] = []

    def route(self, upstreams: Collection[str] = ()) -> Route:
        """upstreams: names of all. Raises ValueError."""
        outside = frozenset(upstreams)
        if self.models[-1] in outside:
            raise ValueError(f"the route {self.name!r} ends with an upstream: a model of this server comes last")
        if (self.sure is None) != outside.issuperset(self.models[:-1]):
            raise ValueError(
                f"the route {self.name!r}: `sure` says when a model before the last one answers: give it if there are "
                "several"
            )
        own = outside & {*self.models, *(table.model for table in self.rule)}
        rules = tuple(table.rule() for table in self.rule)
        return Route(self.name, tuple(self.models), self.sure, rules, own)


class UpstreamTable(_Table):
    name: Name
    url: Annotated[str, Field(max_length=2048, pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*)?$")]
    model: Name
    allows: Literal["public", "internal"]
    key_env: Annotated[str | None, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = None
    timeout: Duration = 60.0
    price_in: Annotated[float | None, Field(ge=0, le=LARGEST_PRICE)] = None
    price_out: Annotated[float | None, Field(ge=0, le=LARGEST_PRICE)] = None
    longest_answer: Annotated[int | None, Field(ge=1, lt=MOST_COUNT)] = None

    @model_validator(mode="after")
    def _has_whole_price(self) -> "UpstreamTable":
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("give both price-in and price-out, or neither")
        if self.price_in is None and self.longest_answer is not None:
            raise ValueError("longest-answer is for requests that cost something: give price-in and price-out")
        return self

    def upstream(self) -> Upstream:
        price = None
        if self.price_in is not None and self.price_out is not None:
            price = Price(self.price_in, self.price_out, self.longest_answer)
        allows = SENSITIVITIES[self.allows]
        return Upstream(self.name, self.url, self.model, allows, self.key_env, self.timeout, price)


def _checked(pattern: str) -> str:
    PrivatePatterns([pattern])
    return pattern


Pattern = Annotated[str, Field(min_length=1, max_length=MOST_PATTERN_CHARACTERS), AfterValidator(_checked)]


class ConfigTables(_Table):
    model: Annotated[list[ModelTable], Field(min_length=1)]
    route: list[RouteTable] = []
    upstream: list[UpstreamTable] = []
    private_patterns: Annotated[list[Pattern], Field(max_length=MOST_PATTERNS)] = []
    memory: Size | None = None
    max_wait: Duration | None = None

    @model_validator(mode="after")
    def _has_whole_routes(self) -> "ConfigTables":
        self.routes()
        return self

    def routes(self) -> tuple[Route, ...]:
        return tuple(table.route([upstream.name for upstream in self.upstream]) for table in self.route)


def read_config_file(path: Path) -> ConfigTables:
    """Raises FrontConfigError."""
    try:
        return ConfigTables.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FrontConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FrontConfigError(f"{path}: not valid TOML: {error}") from error
    except ValidationError as error:
        raise FrontConfigError(f"{path}: {first_fault(error.errors())}") from error


def check_names(config: FrontConfig) -> None:
    """Raises FrontConfigError if two models, routes or upstreams share a name, or a route leads to no model."""
    models = [entry for entry in config.models if not entry.copy]
    names = Counter(name for entry in models for name in dict.fromkeys(entry.names))
    names.update(route.name for route in config.routes)
    names.update(upstream.name for upstream in config.upstreams)
    own = {entry.name for entry in config.models}
    for route in config.routes:
        if missing := sorted(route.targets - own):
            raise FrontConfigError(f"the route {route.name!r} leads to {missing[0]!r}, which is no model's name")
    if doubles := [name for name, count in names.items() if count > 1]:
        raise FrontConfigError(
            f"two models or routes have the name {doubles[0]!r}: give each its own `name` in a file for --config"
        )
