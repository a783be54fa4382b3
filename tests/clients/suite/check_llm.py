"""Simon Willison's llm, with a model of an OpenAI-compatible server in its settings, as its documentation shows."""

import os
from pathlib import Path

from common import URL, Person

SETTINGS = f"""
- model_id: surefoot-small
  model_name: small
  api_base: {URL}
  supports_schema: true
  supports_tools: true
"""
Path(os.environ["LLM_USER_PATH"], "extra-openai-models.yaml").write_text(SETTINGS)

import llm  # noqa: E402  reads the settings

model = llm.get_model("surefoot-small")
model.key = "none"
GREEDY = {"temperature": 0, "max_tokens": 16}


def test_prompt_whole_and_streamed() -> None:
    whole = model.prompt("Name three colours.", stream=False, **GREEDY).text()
    assert whole
    assert "".join(model.prompt("Name three colours.", **GREEDY)) == whole


def test_structured() -> None:
    Person.model_validate_json(model.prompt("A person.", schema=Person, stream=False, max_tokens=80).text())


def test_streamed_tools() -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    reply = model.prompt("What is the weather?", tools=[weather], **GREEDY)
    assert "".join(reply) or reply.tool_calls()


def test_tools() -> None:
    """It leaves the choice to the model: it may talk."""

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    reply = model.prompt("What is the weather?", tools=[weather], stream=False, **GREEDY)
    assert reply.text() or reply.tool_calls()
