"""Kills a process that answers prompts and keeps their blocks: `python -m tests.api.kill_loop --times 1000`.

Every process starts on what those before it left, and answers as one without a cache does. The budget is small, so
that blocks are written, evicted and read all the time.
"""

import argparse
import random
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from surefoot import LLM, SamplingParams
from surefoot.api.prompt_cache import PromptCache
from tests.killing import kill_at_work
from tests.stories import stories_gguf

BUDGET = 1 << 20  # a third of what all prompts need
NUM_PROMPTS, NUM_STEMS, LONGEST = 64, 8, 160
EACH = 100  # kills that are reported together
GREEDY = SamplingParams(max_tokens=8, temperature=0, logprobs=1)


class KeptAnswer(NamedTuple):
    prompt: int  # its number
    text: str  # tokens and bits of logprobs
    num_from_disk: int  # tokens that were read since the process started
    num_damaged: int  # blocks of them


@dataclass(frozen=True)
class AnswerKillReport:
    num_kills: int
    num_answers: int  # all of them right
    num_from_disk: int  # tokens that were read
    num_damaged: int  # blocks


def prompt(number: int) -> list[int]:
    rng = random.Random(number)
    stem = random.Random(-1 - number % NUM_STEMS)
    return [*(stem.randrange(3, 500) for _ in range(rng.randrange(32, LONGEST))), rng.randrange(3, 500)]


def ask(llm: LLM, number: int) -> KeptAnswer:
    (output,) = llm.generate([prompt(number)], GREEDY)
    (sample,) = output.outputs
    text, tier = repr((sample.token_ids, sample.logprobs)), llm.disk_tier
    return KeptAnswer(number, text, *((tier.num_hit_tokens, tier.store.counters.num_damaged) if tier else (0, 0)))


def answer_forever(folder: Path, seed: int, sender: Connection) -> None:
    llm = LLM(stories_gguf(), threads=1, prompt_cache=PromptCache(folder, BUDGET), speculate="off")
    rng = random.Random(seed)
    while True:
        sender.send(ask(llm, rng.randrange(NUM_PROMPTS)))


def run_answer_kills(folder: Path, times: int, seed: int) -> AnswerKillReport:
    cold = LLM(stories_gguf(), threads=1, prefix_caching=False, speculate="off")
    expected = [ask(cold, number).text for number in range(NUM_PROMPTS)]
    rng, num_answers, num_from_disk, num_damaged = random.Random(seed), 0, 0, 0
    for count in range(times):
        given = kill_at_work(answer_forever, (folder, seed + count), rng.randrange(1, 20), delay_s=rng.random() / 100)
        assert all(answer.text == expected[answer.prompt] for answer in given)
        num_answers += len(given)
        num_from_disk += given[-1].num_from_disk
        num_damaged += given[-1].num_damaged
    return AnswerKillReport(times, num_answers, num_from_disk, num_damaged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1000)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="surefoot-kills-") as folder:
        for first in range(0, words.times, EACH):
            print(run_answer_kills(Path(folder), min(EACH, words.times - first), seed=first), flush=True)


if __name__ == "__main__":
    main()
