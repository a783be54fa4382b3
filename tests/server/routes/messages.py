"""A tool, as Anthropic's clients describe it."""

from tests.server.answer.structured import WEATHER

FUNCTION = WEATHER["function"]


TOOL = {
    "name": FUNCTION["name"],
    "description": FUNCTION["description"],
    "input_schema": FUNCTION["parameters"],
}
