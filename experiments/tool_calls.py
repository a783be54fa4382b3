"""How many tool calls parse and validate at a server's default sampling: 200 requests that each need one of five tools.

python -m experiments.tool_calls URL [--requests 200] [--json]

Start a server first: surefoot serve Qwen.gguf --model-name coder. Every request has its own seed, so that a run can be
repeated. A call is right if it is the tool that the question needs; valid if its arguments keep to the tool's schema.
"""

import argparse
import asyncio
import json
from collections import Counter
from typing import Any

import jsonschema
from openai import AsyncOpenAI

AT_ONCE = 8


def _tool(name: str, description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
TOOLS = [
    _tool("get_weather", "The weather in a city now.", ["city"], city=TEXT, unit={"enum": ["celsius", "fahrenheit"]}),
    _tool("read_file", "Read a file of the project.", ["path"], path=TEXT, first_line={"type": "integer"}),
    _tool("convert_money", "Convert an amount of money.", ["amount", "to"], amount=NUMBER, to=TEXT),
    _tool("send_mail", "Send an e-mail.", ["to", "subject", "body"], to=TEXT, subject=TEXT, body=TEXT),
    _tool("run_tests", "Run tests of the project.", ["paths"], paths={"type": "array", "items": TEXT}),
]
CITIES = ("Oslo", "Lima", "Cairo", "Perth", "Osaka", "Quito", "Turin", "Accra")
QUESTIONS = {
    "get_weather": "What is the weather in {city} right now?",
    "read_file": "Show me what is in the file src/{city}.py, please.",
    "convert_money": "How much are {number} dollars in the currency of the country where {city} is?",
    "send_mail": "Write a mail to {city}@example.org that the meeting number {number} is moved to Friday, and send it.",
    "run_tests": "Run the tests in tests/{city} and in tests/common{number}.",
}
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


async def judge(client: AsyncOpenAI, model: str, number: int) -> str:
    """What became of one request."""
    wanted = list(QUESTIONS)[number % len(QUESTIONS)]
    question = QUESTIONS[wanted].format(city=CITIES[number % len(CITIES)], number=10 + number)
    messages = [{"role": "user", "content": question}]
    reply = await client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, seed=number, max_tokens=300  # type: ignore[arg-type]
    )  # fmt: skip
    message, reason = reply.choices[0].message, reply.choices[0].finish_reason
    if not message.tool_calls:
        looks_like = any(f'"{name}"' in (message.content or "") for name in SCHEMAS)
        return "call as text" if looks_like else "cut off" if reason == "length" else "no call"
    return _verdict(wanted, [(call.function.name, call.function.arguments) for call in message.tool_calls])


def _verdict(wanted: str, calls: list[tuple[str, str]]) -> str:
    for name, arguments in calls:
        try:
            jsonschema.validate(json.loads(arguments), SCHEMAS[name])
        except (ValueError, jsonschema.ValidationError):
            return "invalid arguments"
    return "right and valid" if calls[0][0] == wanted else "valid, another tool"


async def run(url: str, num_requests: int) -> Counter[str]:
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600)
    model = (await client.models.list()).data[0].id
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str:
        async with turns:
            return await judge(client, model, number)

    return Counter(await asyncio.gather(*map(one, range(num_requests))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL", help="such as http://127.0.0.1:8000/v1")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    counts = asyncio.run(run(arguments.url, arguments.requests))
    if arguments.json:
        print(json.dumps(counts))
    for verdict, count in [] if arguments.json else counts.most_common():
        print(f"{count:5} {verdict}")


if __name__ == "__main__":
    main()
