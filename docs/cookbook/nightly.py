"""A summary of what changed in a folder since yesterday, for cron. The same texts give the same summary, to the bit.

pip install openai
python docs/cookbook/nightly.py /var/log/tickets summaries/
"""

import argparse
import os
import sys
import time
from datetime import date
from pathlib import Path

from openai import APIStatusError, OpenAI

DAY_S = 24 * 3600
PART_CHARACTERS = 6000  # of a text that is summarised at once
TASK = "Summarise this text in at most three short points. Name people, numbers and open questions."
OVERVIEW = "These are summaries of today's texts. Write one paragraph on what matters most."


class Summariser:
    def __init__(self, client: OpenAI, model: str, max_tokens: int) -> None:
        self._client = client
        self._model = model
        self._max_tokens = max_tokens

    def summarise(self, task: str, text: str) -> str:
        """`flex` is the server's class for work that nobody waits for: people's requests go first."""
        reply = self._client.chat.completions.create(
            model=self._model, messages=[{"role": "user", "content": f"{task}\n\n{text}"}], temperature=0, seed=0,
            max_tokens=self._max_tokens, service_tier="flex",
        )  # fmt: skip
        return (reply.choices[0].message.content or "").strip()

    def summarise_long(self, text: str) -> str:
        parts = [text[start : start + PART_CHARACTERS] for start in range(0, len(text), PART_CHARACTERS)]
        return "\n".join(self.summarise(TASK, part) for part in parts)


def changed(folder: Path, since: float) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_mtime >= since)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("summaries", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="chat")
    parser.add_argument("--max-tokens", type=int, default=300)
    given = parser.parse_args()
    # A busy or restarting server answers 429 or 503 with Retry-After, which the client heeds.
    client = OpenAI(base_url=given.url, api_key=os.environ.get("SUREFOOT_KEY", "none"), max_retries=20, timeout=3600)
    summariser = Summariser(client, given.model, given.max_tokens)
    files = changed(given.folder, time.time() - DAY_S)
    if not files:
        return
    try:
        each = {file: summariser.summarise_long(file.read_text(errors="replace")) for file in files}
        overview = summariser.summarise(OVERVIEW, "\n\n".join(each.values()))
    except APIStatusError as error:  # cron mails what is written to stderr
        sys.exit(f"no summary: {error.message}")
    parts = [f"# {date.today()}\n\n{overview}\n", *(f"## {file.name}\n\n{text}\n" for file, text in each.items())]
    given.summaries.mkdir(parents=True, exist_ok=True)
    (given.summaries / f"{date.today()}.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
