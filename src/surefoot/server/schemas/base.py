"""Bounded types, and the sampling parameters that all generating routes share."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, GetCoreSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from surefoot.core import SamplingParams
from surefoot.server.errors import bad_request
from surefoot.server.schemas.dialects import (
    MINUS_ONE,
    MOST_GRAMMAR_CHARACTERS,
    is_strict,
    note,
    translate,
    without_unknown,
)

MOST_SAMPLES = 16
MOST_LOGPROBS = 20
MOST_STOPS = 64
MOST_STOP_CHARACTERS = 256
MOST_STOP_IDS = 64
MOST_BIASES = 1024
MOST_MESSAGES = 4096
MOST_TOOLS = 512
MOST_PROMPTS = 32
LARGEST_SEED = 2**63 - 1
LARGEST_TOKEN = 2**31 - 1

TokenId = Annotated[int, Field(strict=True, ge=0, le=LARGEST_TOKEN)]
Whole = Annotated[int, Field(strict=True, ge=0, le=LARGEST_TOKEN)]
Positive = Annotated[int, Field(strict=True, ge=1, le=LARGEST_TOKEN)]
StopString = Annotated[str, Field(min_length=1, max_length=MOST_STOP_CHARACTERS)]
ModelName = Annotated[str, Field(min_length=1, max_length=256)]  # left out: the first model
Stops = StopString | Annotated[list[StopString], Field(max_length=MOST_STOPS)] | None
Temperature = Annotated[float | None, Field(ge=0, le=2)]
TopP = Annotated[float | None, Field(gt=0, le=1)]
MinP = Annotated[float | None, Field(ge=0, le=1)]
Penalty = Annotated[float | None, Field(ge=-2, le=2)]
RepetitionPenalty = Annotated[float | None, Field(gt=0, le=100)]
Deadline = Annotated[float | None, Field(gt=0, le=86400)]  # seconds
Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9_.:-]+$")]


def _stop_at_first_error(schema: Any) -> None:
    """Make every list and dict of a pydantic schema stop at its first error: an error takes far more than an item."""
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "dict"):
            schema["fail_fast"] = True
        for key, inner in schema.items():
            if key not in ("metadata", "serialization"):
                _stop_at_first_error(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            _stop_at_first_error(inner)


@cache
def _field_names(kind: type[BaseModel]) -> frozenset[str]:
    """The fields as clients name them."""
    return frozenset(field.alias or name for name, field in kind.model_fields.items())


class Received(BaseModel):
    """What a client sends, or a part of it."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _stop_at_first_error(schema)
        return schema


class Body(Received):
    """Parameters from a client. Unknown ones are dropped and noted, or refused; NaN and infinities are refused."""

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, json_schema_extra=lambda schema: schema.pop("additionalProperties", None)
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = _field_names(cls)
        return without_unknown(cls.translated(data, known), known)

    @classmethod
    def translated(cls, data: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
        """The parameters under the names of this class's fields."""
        return data


class RequestBody(Body):
    """The whole body of a request to a generating route. Parameter names of other servers are understood."""

    @classmethod
    def translated(cls, data: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
        return translate(data, known)


class Lenient(Received):
    """A part of a conversation, or a tool. Another server may have written it, so unknown keys are dropped."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Reply(BaseModel):
    """A reply to a client, or a part of one."""

    model_config = ConfigDict(extra="allow")


def tools_of(*kinds: str | None) -> Callable[[Any], Any]:
    """A validator that keeps tools of these kinds. Other kinds run on a vendor's server: they are dropped and noted."""

    def choose(tools: Any) -> Any:
        if is_strict() or not isinstance(tools, list):
            return tools
        chosen = []
        for tool in tools:
            kind = tool.get("type") if isinstance(tool, dict) else None
            if isinstance(kind, str) and kind not in kinds:
                note(f"tools of type {kind}")
            else:
                chosen.append(tool)
        return chosen

    return choose


KNOWN, OTHER = "[known]", "[other]"  # tags of forms, which are left out of errors


def by_type(known: Any, what: str, special: Callable[[dict[str, Any]], str | None] | None = None) -> Discriminator:
    """Tells the members of a union by their type; all other types are OTHER. special: a tag for some objects."""
    types = {name for kind in get_args(known) for name in get_args(kind.model_fields["type"].annotation)}

    def find(value: Any) -> str | None:
        if special is not None and isinstance(value, dict) and (tag := special(value)) is not None:
            return tag
        kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return (KNOWN if kind in types else OTHER) if isinstance(kind, str) else None

    return Discriminator(
        find, custom_error_type="unknown_form", custom_error_message=f"{what} is an object with a type"
    )


class StreamOptions(Body):
    include_usage: bool | None = False
    include_obfuscation: bool | None = False


class JsonSchema(Body):
    name: Name = "answer"
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextFormat(Body):
    type: Literal["text"]


class JsonObjectFormat(Body):
    type: Literal["json_object"]


class JsonSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: JsonSchema


class RegexFormat(Body):
    """An extension of OpenAI's formats."""

    type: Literal["regex"]
    regex: Annotated[str, Field(min_length=1, max_length=MOST_GRAMMAR_CHARACTERS)]


class GrammarFormat(Body):
    """An extension of OpenAI's formats. The grammar is in llguidance's dialect of Lark."""

    type: Literal["grammar"]
    grammar: Annotated[str, Field(min_length=1, max_length=MOST_GRAMMAR_CHARACTERS)]


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | RegexFormat | GrammarFormat, Field(discriminator="type")
]


class GeneratingFields(RequestBody):
    """What OpenAI's requests for answers share. top_k and min_p are extensions."""

    model: ModelName | None = None
    temperature: Temperature = None
    top_p: TopP = None
    top_k: Annotated[int | None, Field(ge=0, le=LARGEST_TOKEN)] = None
    min_p: MinP = None
    seed: Annotated[int | None, Field(ge=0, le=LARGEST_SEED)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str | None, Field(max_length=256)] = None


class LlamaFields(Received):
    """Sampling parameters as llama.cpp and Ollama name them."""

    temperature: Temperature = None
    top_p: TopP = None
    top_k: Annotated[int | None, Field(ge=-1, le=LARGEST_TOKEN)] = None
    min_p: MinP = None
    repeat_penalty: RepetitionPenalty = None
    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    seed: Annotated[int | None, Field(ge=-1, le=LARGEST_SEED)] = None
    stop: Stops = None

    def as_openai(self) -> dict[str, Any]:
        """The parameters under OpenAI's names."""
        values = self.model_dump(include=set(LlamaFields.model_fields))
        values["repetition_penalty"] = values.pop("repeat_penalty")
        return values | {name: meaning for name, meaning in MINUS_ONE.items() if values.get(name) == -1}


class SamplingFields(GeneratingFields):
    """OpenAI's other sampling parameters and, from repetition_penalty on, those of other servers."""

    n: Annotated[int | None, Field(ge=1, le=MOST_SAMPLES)] = None
    stop: Stops = None
    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]] | None, Field(max_length=MOST_BIASES)] = (
        None
    )
    repetition_penalty: RepetitionPenalty = None
    stop_token_ids: Annotated[list[TokenId] | None, Field(max_length=MOST_STOP_IDS)] = None
    ignore_eos: bool | None = None
    min_tokens: Whole | None = None
    skip_special_tokens: bool | None = None
    deadline_s: Deadline = None

    @field_validator("logit_bias")
    @classmethod
    def _keys_are_ids(cls, biases: dict[str, float] | None) -> dict[str, float] | None:
        for token in biases or {}:
            if not (token.isascii() and token.isdigit() and int(token[:11]) <= LARGEST_TOKEN and len(token) <= 10):
                raise ValueError("logit_bias maps token ids, written as decimal strings, to numbers")
        return biases

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampling(
        self, max_tokens: int | None, logprobs: int | None, seed: int, grammar: str | None, defaults: SamplingParams
    ) -> SamplingParams:
        """The request's sampling parameters. defaults: the server's, for values that are left out or null."""
        names = {
            "temperature", "top_p", "n", "presence_penalty", "frequency_penalty", "top_k", "min_p",
            "repetition_penalty", "ignore_eos", "skip_special_tokens", "min_tokens",
        }  # fmt: skip
        values = self.model_dump(include=names, exclude_none=True)
        if grammar is not None:
            if values.get("min_tokens"):
                note("min_tokens")
            values |= {"grammar": grammar, "min_tokens": 0}  # the grammar alone says when the answer may end
        try:
            return replace(
                defaults,
                logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items()},
                stop=self.stops,
                stop_token_ids=tuple(self.stop_token_ids or ()),
                seed=seed,
                max_tokens=max_tokens,
                logprobs=logprobs,
                **values,
            )
        except ValueError as error:
            raise bad_request(str(error)) from error
