"""llama-server's /infill."""

from typing import Annotated, Any

from pydantic import Field

from surefoot.server.schemas.base import LARGEST_SEED, LARGEST_TOKEN, MOST_STOPS, RequestBody, StopString
from surefoot.server.schemas.completions import MOST_EXTRA_FILES, CompletionRequest, ExtraFile


class InfillRequest(RequestBody):
    """llama-server's request. Editors send many more fields, about slots, caches and samplers, which are ignored."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: Annotated[list[ExtraFile], Field(max_length=MOST_EXTRA_FILES)] = []  # noqa: RUF012
    prompt: str = ""
    n_predict: Annotated[int, Field(ge=-2, le=LARGEST_TOKEN)] = -1
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_k: Annotated[int | None, Field(ge=-1, le=LARGEST_TOKEN)] = None
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    repeat_penalty: Annotated[float | None, Field(gt=0, le=100)] = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    seed: Annotated[int | None, Field(ge=-1, le=LARGEST_SEED)] = None
    stop: Annotated[list[StopString] | None, Field(max_length=MOST_STOPS)] = None
    stream: bool | None = None

    def as_completion(self, model: str) -> CompletionRequest:
        sampling: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "seed")
        }
        # Negative values mean no limit or no seed. A top_p of 0 means nearly greedy.
        sampling = {name: value for name, value in sampling.items() if value is not None and value >= 0}
        return CompletionRequest(
            model=model,
            prompt=self.input_prefix + self.prompt,
            suffix=self.input_suffix,
            input_extra=self.input_extra,
            max_tokens=None if self.n_predict < 0 else max(1, self.n_predict),
            repetition_penalty=self.repeat_penalty,
            stop=self.stop,
            stream=self.stream,
            **{**sampling, **({"top_p": 1e-6} if sampling.get("top_p") == 0 else {})},
        )
