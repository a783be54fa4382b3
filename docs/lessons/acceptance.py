"""Speculation: how many tokens a second drafts give, by how often they are right. See acceptance.md.

python docs/lessons/acceptance.py MODEL [--quick] [--svg plot.svg]
"""

import random
import time
from collections.abc import Sequence

from lesson import arguments, draw, predicted_steps, show

from surefoot import LLM, SamplingParams
from surefoot.runner import SessionRunner, Work
from surefoot.speed.step_time import ChunkLoad

PROMPT = "Once upon a time there was"


class Decoder:
    """Decodes with drafts that are right with a given probability, which needs to know the answer."""

    def __init__(self, llm: LLM, num_tokens: int) -> None:
        self.prompt = llm.tokenizer.encode(PROMPT)
        params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
        self.answer = list(llm.generate(self.prompt, params)[0].outputs[0].token_ids)
        self.runner = SessionRunner.make(llm.backend, llm.model, num_tokens=2 * num_tokens + len(self.prompt) + 64)

    def run(self, depth: int, acceptance: float) -> tuple[float, float]:
        """Tokens a second, and the share of drafted tokens that were accepted. Greedy."""
        rng, text, start = random.Random(1), list(self.prompt), len(self.prompt)
        session = self.runner.open(start + 2 * len(self.answer))
        self.runner.execute([Work(session, text[:-1], 1)])
        session.num_tokens, num_drafted, num_accepted, begin = start - 1, 0, 0, time.perf_counter()
        while len(text) < start + len(self.answer):
            right = self.answer[len(text) - start :][:depth]
            drafts = [token if rng.random() < acceptance else (token + 1) % 100 for token in right]
            logits = self.runner.execute([Work(session, [text[-1], *drafts], 1 + len(drafts))])
            own = logits.argmax(axis=1).tolist()
            count = next((place for place, draft in enumerate(drafts) if own[place] != draft), len(drafts))
            text += own[: count + 1]
            session.num_tokens = len(text) - 1
            num_drafted, num_accepted = num_drafted + len(drafts), num_accepted + count
        seconds = time.perf_counter() - begin
        self.runner.close(session)
        assert text[start:][: len(self.answer)] == self.answer, "drafts never change the text"
        return len(self.answer) / seconds, num_accepted / max(1, num_drafted)


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words)
    num_tokens, depths = (12, (0, 2)) if asked.quick else (128, (0, 2, 4, 8))
    times = predicted_steps(asked.model, asked.threads, asked.quick)
    decoder = Decoder(LLM(asked.model, max_context=512, speculate="off", threads=asked.threads), num_tokens)
    context, rows = len(decoder.prompt) + num_tokens // 2, []
    decoder.run(0, 0.0)
    plain = max(decoder.run(0, 0.0)[0] for _ in range(2))
    for depth in depths[1:]:
        for acceptance in (0.3, 0.6, 0.9):
            step, one = (times.seconds([ChunkLoad(n, context)], n) for n in (1 + depth, 1))
            useful = sum(acceptance**number for number in range(depth + 1))
            speed, accepted = decoder.run(depth, acceptance)
            rows.append((depth, acceptance, accepted, useful * one / step, speed / plain))
    show(("drafted tokens", "right with probability", "accepted", "predicted gain", "measured gain"), rows)
    deep = [row for row in rows if row[0] == depths[-1]]
    lines = {"predicted": [(row[1], row[3]) for row in deep], "measured": [(row[1], row[4]) for row in deep]}
    draw(asked.svg, f"Speed over none, {depths[-1]} drafted tokens", "probability", "times", lines)


if __name__ == "__main__":
    main()
