"""Requests that between them use all that can be asked for."""

import random
from dataclasses import replace

from surefoot.core import Request, SamplingParams

LONGEST_PROMPT = 150
SHARED = 70  # tokens that a third of the prompts begin with, so that prefixes are found
# Short enough to be found, and to be cut across tokens.
STOPS = (("e ", "zzz"), ("and", " t"), (".", ","))


def make_requests(count: int, vocab_size: int, context: int, num_new: int, eos: frozenset[int]) -> list[Request]:
    """count requests of random tokens: greedy and sampled, with filters, penalties, biases, stops, n = 3, logprobs."""
    rng = random.Random(count)
    longest = min(LONGEST_PROMPT, context - num_new)

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(vocab_size) for _ in range(length))

    shared = tokens(min(SHARED, longest // 2))
    made: list[Request] = []
    for number in range(count):
        length = rng.choice([1, rng.randint(2, 20), rng.randint(15, 17), rng.randint(20, longest)])
        prompt = tokens(length) if number % 3 else shared + tokens(min(length, longest - len(shared)))
        if number % 8 == 7:
            prompt = made[-1].prompt  # asked before: all of it may be cached
        made.append(Request(f"r{number}", prompt, _params(number, num_new, rng), eos_token_ids=eos))
    return made


def _params(number: int, num_new: int, rng: random.Random) -> SamplingParams:
    kinds = [
        SamplingParams(temperature=0, logprobs=2),
        SamplingParams(logprobs=1),
        SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.3, presence_penalty=0.5, logprobs=0),
        SamplingParams(temperature=0, stop=rng.choice(STOPS), logprobs=1, ignore_eos=True),
        SamplingParams(temperature=1.2, n=3, frequency_penalty=0.4, logprobs=3),
        SamplingParams(top_k=20, logit_bias={3: 5.0, 7: -100.0}, stop=rng.choice(STOPS), n=2, logprobs=0),
        SamplingParams(temperature=0, repetition_penalty=1.1, logprobs=5),
        SamplingParams(temperature=0.7, min_p=0.05),
    ]
    return replace(kinds[number % len(kinds)], seed=rng.getrandbits(63), max_tokens=rng.randint(1, num_new))
