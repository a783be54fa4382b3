"""Builds one sample's answer: tokens in, text out."""

from surefoot.api.outputs import CompletionOutput, Logprob, Piece
from surefoot.api.stops import StopFinder
from surefoot.core import FinishReason, Request
from surefoot.engine import Event
from surefoot.sampling import TokenLogprobs
from surefoot.text import StreamDecoder, Tokenizer


class AnswerBuilder:
    """Takes tokens one by one, however many a step brings, so that the answer's end does not depend on the schedule."""

    def __init__(self, tokenizer: Tokenizer, request: Request, index: int, continues: bool) -> None:
        self._tokenizer = tokenizer
        self._request = request
        self._index = index
        self._decoder = StreamDecoder(tokenizer, skip_special=request.params.skip_special_tokens, continues=continues)
        self._stops = StopFinder(request.params.stop)
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[dict[int, Logprob]] | None = [] if request.params.logprobs is not None else None
        self._reason: FinishReason | None = None
        self._stop_reason: str | int | None = None
        self._error: str | None = None

    @property
    def is_done(self) -> bool:
        return self._reason is not None

    def feed(self, event: Event) -> Piece:
        num_tokens, text = len(self._tokens), ""
        for number, token in enumerate(event.tokens):
            is_stop = event.reason is FinishReason.STOP and number == len(event.tokens) - 1
            text += self._add(token, is_stop)
            if self._logprobs is not None and number < len(event.logprobs):
                self._logprobs.append(logprobs_by_token(self._tokenizer, event.logprobs[number]))
            if self._stops.found is not None:
                self._reason, self._stop_reason = FinishReason.STOP, self._stops.found
                break
        if event.reason is not None and self._reason is None:
            self._reason, self._error = event.reason, event.error
            text += self._stops.feed(self._decoder.finish()) + self._stops.finish()
        self._text.append(text)
        logprobs = None if self._logprobs is None else tuple(self._logprobs[num_tokens:])
        reason = None if self._reason is None else self._reason.value
        return Piece(self._index, text, tuple(self._tokens[num_tokens:]), logprobs, reason, error=self._error)

    def output(self) -> CompletionOutput:
        logprobs = None if self._logprobs is None else tuple(self._logprobs)
        reason = None if self._reason is None else self._reason.value
        return CompletionOutput(
            self._index, "".join(self._text), tuple(self._tokens), logprobs, reason, self._stop_reason, self._error
        )

    def _add(self, token: int, is_stop: bool) -> str:
        """The text that a token adds. A stop token adds none."""
        self._tokens.append(token)
        if is_stop:
            self._stop_reason = token if token in self._request.params.stop_token_ids else None
            return ""
        return self._stops.feed(self._decoder.feed([token]))


def logprobs_by_token(tokenizer: Tokenizer, logprobs: TokenLogprobs) -> dict[int, Logprob]:
    """Logprobs by token id, the sampled token first."""
    ranks = {token: rank for rank, (token, _) in enumerate(logprobs.top, 1)}
    values = {logprobs.token: logprobs.logprob, **dict(logprobs.top)}
    texts = {token: tokenizer.token_bytes(token).decode(errors="replace") for token in values}
    return {token: Logprob(value, texts[token], ranks.get(token)) for token, value in values.items()}
