"""What the clients' checks share. These files run in the clients' own environment, without surefoot."""

import os
from typing import Any, Literal

from pydantic import BaseModel, Field

ROOT = os.environ["SUREFOOT_ROOT"]
URL = f"{ROOT}/v1"
ASK: list[Any] = [{"role": "user", "content": "Name three colours."}]


class Person(BaseModel):
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=99)


class Weather(BaseModel):
    """The weather of a city."""

    city: str = Field(max_length=16)
    unit: Literal["celsius", "fahrenheit"]


TOOL = {
    "type": "function",
    "function": {"name": "Weather", "description": "The weather of a city.", "parameters": Weather.model_json_schema()},
}
