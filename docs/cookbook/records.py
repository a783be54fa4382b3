"""Records from texts, to a JSON schema, by a batch: every answer parses and fits the schema.

pip install openai
python docs/cookbook/records.py reviews.txt records.jsonl       # one text a line
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from openai import OpenAI

SCHEMA = {
    "type": "object",
    "properties": {
        "product": {"type": "string", "maxLength": 40},
        "mood": {"enum": ["pleased", "neutral", "angry"]},
        "wants_refund": {"type": "boolean"},
    },
    "required": ["product", "mood", "wants_refund"],
    "additionalProperties": False,
}
TASK = "Extract the product, the customer's mood and whether a refund is wanted from this review, as JSON:"
ENDS = ("completed", "failed", "expired", "cancelled")


def request(number: int, text: str, model: str) -> dict[str, Any]:
    """A line of the batch. What stays the same stands first, so that it is computed once for all lines."""
    body = {
        "model": model,
        "messages": [{"role": "system", "content": TASK}, {"role": "user", "content": text}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "review", "schema": SCHEMA}},
        "temperature": 0,
        "max_tokens": 120,
    }
    return {"custom_id": f"{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def run(client: OpenAI, texts: list[str], model: str, poll_s: float) -> str:
    """The answers, a line each. The server may be restarted meanwhile: no line is lost."""
    lines = "".join(json.dumps(request(number, text, model)) + "\n" for number, text in enumerate(texts))
    file = client.files.create(file=("requests.jsonl", lines.encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    while batch.status not in ENDS:
        time.sleep(poll_s)
        batch = client.batches.retrieve(batch.id)
        print(f"\r{batch.request_counts.completed} of {batch.request_counts.total}", end="", flush=True)
    print(f"\r{batch.status}: {batch.request_counts.completed} of {batch.request_counts.total}")
    return client.files.content(batch.output_file_id).text


def record(line: str, texts: list[str]) -> dict[str, Any]:
    """A record with its text. One that max_tokens cut off has no fields but an error."""
    reply = json.loads(line)
    choice = reply["response"]["body"]["choices"][0]
    text = texts[int(reply["custom_id"])]
    if choice["finish_reason"] != "stop":
        return {"text": text, "error": f"the answer ended by {choice['finish_reason']}"}
    return {"text": text, **json.loads(choice["message"]["content"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="chat")
    parser.add_argument("--poll-s", type=float, default=5.0)
    given = parser.parse_args()
    client = OpenAI(base_url=given.url, api_key=os.environ.get("SUREFOOT_KEY", "none"))
    texts = [line for line in given.texts.read_text().splitlines() if line.strip()]
    answers = run(client, texts, given.model, given.poll_s)
    in_order = sorted(answers.splitlines(), key=lambda line: int(json.loads(line)["custom_id"]))
    found = [record(line, texts) for line in in_order]
    given.records.write_text("".join(json.dumps(one) + "\n" for one in found))


if __name__ == "__main__":
    main()
