"""Bodies of requests and replies as pydantic models. Every field is bounded; unknown parameters do not pass."""
