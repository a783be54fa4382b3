"""llama-server's /infill."""

from typing import Annotated

from pydantic import Field

from surefoot.server.schemas.base import LARGEST_TOKEN, LlamaFields, MinP, RequestBody
from surefoot.server.schemas.completions import MOST_EXTRA_FILES, CompletionRequest, ExtraFile


class InfillRequest(RequestBody, LlamaFields):
    """llama-server's request. Editors send many more fields, about slots, caches and samplers, which are ignored."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: Annotated[list[ExtraFile], Field(max_length=MOST_EXTRA_FILES)] = []  # noqa: RUF012
    prompt: str = ""
    n_predict: Annotated[int, Field(ge=-2, le=LARGEST_TOKEN)] = -1  # negative: no limit
    top_p: MinP = None  # 0: nearly greedy
    stream: bool | None = None

    def as_completion(self, model: str) -> CompletionRequest:
        return CompletionRequest(
            model=model,
            prompt=self.input_prefix + self.prompt,
            suffix=self.input_suffix,
            input_extra=self.input_extra,
            max_tokens=None if self.n_predict < 0 else max(1, self.n_predict),
            stream=self.stream,
            **{**self.as_openai(), **({"top_p": 1e-6} if self.top_p == 0 else {})},
        )
