"""Errors of requests, and their form in each API. Errors of configuration files."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
MOST_PARAM_CHARACTERS = 160
MOST_MESSAGE_CHARACTERS = 400  # of pydantic's message, which may repeat the client's input


class ApiError(Exception):
    """An error reply. `message` says what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def as_openai(self) -> dict[str, Any]:
        kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(self.status)
        kind = kind or ("invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def as_anthropic(self) -> dict[str, Any]:
        kind = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": self.message}}

    def as_ollama(self) -> dict[str, Any]:
        return {"error": self.message}

    def body_for(self, path: str) -> dict[str, Any]:
        if path.startswith("/api/"):
            return self.as_ollama()
        return self.as_anthropic() if path.startswith("/v1/messages") else self.as_openai()


class ContextOverflow(ApiError):
    """A prompt longer than the context, in the words by which each API's clients know it and make it shorter."""

    def __init__(self, count: int, most: int, param: str = "messages") -> None:
        """count: tokens of the prompt, or at least so many. most: the most that a prompt may have."""
        message = (
            f"This model's maximum context length is {most} tokens. However, your messages resulted in {count} tokens. "
            "Please reduce the length of the messages, or shorten the input."
        )
        super().__init__(400, message, param=param, code="context_length_exceeded")
        self.count = count
        self.most = most

    def as_anthropic(self) -> dict[str, Any]:
        message = f"prompt is too long: {self.count} tokens > {self.most} maximum"
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}

    def as_ollama(self) -> dict[str, Any]:
        return {"error": f"the input length exceeds the context length: {self.count} tokens > {self.most} maximum"}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def too_many(message: str, retry_after_s: float, code: str = "rate_limit_exceeded") -> ApiError:
    seconds = max(1, round(retry_after_s))
    return ApiError(429, f"{message}; try again in {seconds} s", code=code, headers={"Retry-After": str(seconds)})


def too_large(most: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most} bytes: send less")


def of_status(status: int) -> ApiError:
    """The error for a request that the web framework itself refuses."""
    advice = {404: "there is no such route: see /openapi.json", 405: "this route wants another method"}
    return ApiError(status, advice.get(status, HTTPStatus(status).phrase))


def _is_form(part: int | str) -> bool:
    """Whether a part of pydantic's location names one of several forms of a field."""
    return isinstance(part, str) and ("[" in part or part == "str")


def of_validation(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first of pydantic's errors, as a sentence. The client's input is not repeated, since it may be long."""
    # Of several forms of a field, the client meant the one that fits best.
    first = min(errors, key=lambda error: (error["type"] != "extra_forbidden", error["type"].endswith("_type")))
    path = [str(part) for part in first["loc"] if part != "body" and not _is_form(part)]
    param = ".".join(path)[:MOST_PARAM_CHARACTERS] or None
    if first["type"] == "json_invalid":
        return bad_request("the body is not JSON: send one JSON object", code="invalid_json")
    if first["type"] == "extra_forbidden":
        return bad_request(f"unknown parameter {param!r}: remove it", param, "unknown_parameter")
    if first["type"] == "missing":
        return bad_request(f"{param or 'the body'} is missing: give it", param, "missing_parameter")
    message = str(first["msg"]).removeprefix("Value error, ")[:MOST_MESSAGE_CHARACTERS]
    return bad_request(f"{param}: {message}" if param else message, param, "invalid_value")


def first_fault(errors: Sequence[Mapping[str, Any]]) -> str:
    """The first of pydantic's errors in a configuration file: the field, and why it is invalid."""
    fault = errors[0]
    field = ".".join(map(str, fault["loc"]))
    if fault["type"] == "missing":
        return f"{field} is missing"
    if fault["type"] == "extra_forbidden":
        return f"unknown field {field}"
    message: str = fault["msg"].removeprefix("Value error, ")
    return f"{field}: {message}" if field else message
