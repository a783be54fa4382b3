"""Whether a model is sure of its answer, by the logprobs of the answer's first tokens.

The front process asks this of a small model, and takes the request to a larger one if it is not sure. Logprobs are
exact, so the same request always goes the same way.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Send

from surefoot.api.answers import Piece, RequestOutput
from surefoot.api.confidence import MOST_TOKENS, Confidence, sampled_logprobs
from surefoot.core import SamplingParams
from surefoot.server.errors import ApiError

RULE_HEADER = "x-surefoot-sure"  # of a request: the rule
CONFIDENCE_HEADER = "x-surefoot-confidence"  # of its reply
UNSURE = "unsure"  # the error's code

Bound = Annotated[float, Field(le=0)]


class SureRule(BaseModel):
    """When a model is sure. Every bound that is given must be met."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True,
        allow_inf_nan=False,
    )  # fmt: skip

    tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)]  # of each answer, its first ones
    mean_logprob: Bound | None = None  # at least
    least_logprob: Bound | None = None

    @model_validator(mode="after")
    def _has_bound(self) -> "SureRule":
        if self.mean_logprob is None and self.least_logprob is None:
            raise ValueError("give mean-logprob, least-logprob or both")
        return self

    def is_met(self, found: Confidence) -> bool:
        bounds = ((self.mean_logprob, found.mean_logprob), (self.least_logprob, found.least_logprob))
        return all(bound is None or value >= bound for bound, value in bounds)


@dataclass
class SureCheck:
    """The check of one request. A request for n answers is judged by all of them."""

    rule: SureRule
    found: Confidence | None = None
    is_shown: bool = True  # whether the client asked for logprobs itself
    _logprobs: list[float] = field(default_factory=list)
    _counts: Counter[int] = field(default_factory=Counter)  # tokens by answer
    _ended: set[int] = field(default_factory=set)

    @classmethod
    def asked(cls, headers: Headers) -> "SureCheck | None":
        rule = headers.get(RULE_HEADER)
        return None if rule is None else cls(SureRule.model_validate_json(rule))

    def scored(self, params: SamplingParams) -> SamplingParams:
        """The parameters, so that the answer has logprobs."""
        self.is_shown = params.logprobs is not None
        return params if self.is_shown else replace(params, logprobs=0)

    def take(self, piece: Piece) -> None:
        wanted = self.rule.tokens - self._counts[piece.index]
        found = list(sampled_logprobs((piece.logprobs or ())[:wanted]))
        self._counts[piece.index] += len(found)
        self._logprobs += found
        if piece.finish_reason is not None or self._counts[piece.index] == self.rule.tokens:
            self._ended.add(piece.index)

    def is_decided(self, num_answers: int) -> bool:
        return len(self._ended) == num_answers

    def decide(self) -> None:
        """Raises ApiError if the model is not sure."""
        self.found = Confidence.of(self._logprobs)
        if not self.rule.is_met(self.found):
            raise ApiError(409, "the model is not sure of its answer", code=UNSURE)

    def shown(self, piece: Piece) -> Piece:
        """The piece as the client asked for it."""
        if self.is_shown:
            return piece
        output = None if piece.output is None else self.shown_output(piece.output)
        return replace(piece, logprobs=None, output=output)

    def shown_output(self, output: RequestOutput) -> RequestOutput:
        if self.is_shown:
            return output
        return replace(output, outputs=tuple(replace(answer, logprobs=None) for answer in output.outputs))

    def telling(self, send: Send) -> Send:
        """Sends a reply with what was found."""

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start" and self.found is not None:
                told = {**asdict(self.found), "is_sure": self.rule.is_met(self.found)}
                MutableHeaders(scope=message)[CONFIDENCE_HEADER] = json.dumps(told)
            await send(message)

        return tell


def confidence_in(headers: Headers) -> dict[str, Any] | None:
    """What a reply tells of the check. None: there was none."""
    found = headers.get(CONFIDENCE_HEADER)
    return None if found is None else json.loads(found)
