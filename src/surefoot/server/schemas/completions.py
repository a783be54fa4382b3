"""/v1/completions."""

from typing import Annotated

from pydantic import Field, model_validator

from surefoot.server.schemas.base import MOST_PROMPTS, Lenient, ResponseFormat, SamplingFields, TokenId, Whole

Tokens = Annotated[list[TokenId], Field(min_length=1)]
Prompts = str | Tokens | Annotated[list[str | Tokens], Field(min_length=1, max_length=MOST_PROMPTS)]
DEFAULT_MAX_TOKENS = 16
MOST_EXTRA_FILES = 256


class ExtraFile(Lenient):
    """Another file of the project, as context for filling in."""

    filename: Annotated[str, Field(max_length=4096)] = "tmp"
    text: str


class CompletionRequest(SamplingFields):
    """OpenAI's completion request. With a suffix, or with input_extra (an extension), the answer is the text between
    prompt and suffix."""

    prompt: Prompts
    suffix: str | None = None
    input_extra: Annotated[list[ExtraFile] | None, Field(max_length=MOST_EXTRA_FILES)] = None
    max_tokens: Whole | None = DEFAULT_MAX_TOKENS
    logprobs: Annotated[int | None, Field(ge=0, le=20)] = None
    echo: bool | None = None
    response_format: ResponseFormat | None = None
    return_token_ids: bool | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "CompletionRequest":
        if self.stream and self.echo and (self.logprobs is not None or self.max_tokens == 0):
            raise ValueError("a prompt's logprobs, or nothing but the prompt, cannot be streamed: set stream to false")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens of 0 needs echo: ask for at least one token")
        return self

    @property
    def prompt_logprobs(self) -> int | None:
        return self.logprobs if self.echo else None

    @property
    def fills_in(self) -> bool:
        return bool(self.suffix) or self.input_extra is not None

    def prompts(self) -> list[str | list[int]]:
        return listed(self.prompt)


def listed(prompt: str | list[int] | list[str | list[int]]) -> list[str | list[int]]:
    """One prompt or several, as a list."""
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        return [prompt]
    return list(prompt)
