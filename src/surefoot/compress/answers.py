"""What the target itself answers, and the hidden states that it drew each token from: what a head learns from.

Decoding many answers together costs what reading as many tokens would, and the states come with it. Answers are written
in waves, a file each, so that writing which was stopped goes on with the next wave.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.api import LLM, SamplingParams
from surefoot.api.loading import make_engine
from surefoot.compress.arrays import load_arrays, save_arrays
from surefoot.compress.later import Tensor, torch
from surefoot.core import Request, SampleKey
from surefoot.ops.arrays import F32
from surefoot.speculate import NOTHING, Prospect, Speculator

WAVE = 64  # answers under way at once: so many rows of a step cost little more than half as many
TEMPERATURE = 0.8  # of every second answer; the others are greedy


@dataclass(frozen=True)
class Answer:
    """Tokens [n] in the order drawn, and the states [n, width], bfloat16, that they were drawn from."""

    tokens: Tensor
    states: Tensor


class Recorder:
    """A Drafter that never drafts: it keeps what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, list[tuple[int, Tensor]]] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None: ...
    def end(self, key: SampleKey) -> None: ...

    def advance(self, key: SampleKey, tokens: Sequence[int], state: F32 | None = None) -> None:
        if state is not None:
            self.told.setdefault(key.request, []).append((tokens[-1], torch.tensor(state, dtype=torch.bfloat16)))

    def prospects(self, keys: Sequence[SampleKey], most: int) -> list[Prospect]:
        return [NOTHING] * len(keys)

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        return {}


def write_answers(
    llm: LLM, prompts: Sequence[str], num_new: int, folder: Path, say: Callable[[int, int], None]
) -> list[Answer]:
    """All prompts' answers, of at most so many tokens each. say: told how many waves are done, of how many."""
    folder.mkdir(parents=True, exist_ok=True)
    numbered = list(enumerate(prompts))
    waves = [numbered[start : start + WAVE] for start in range(0, len(numbered), WAVE)]
    answers: list[Answer] = []
    for number, wave in enumerate(waves):
        path = folder / f"{number:04}.safetensors"
        if not path.exists():
            _save(_answer(llm, wave, num_new), path)
        answers += read_answers(path)
        say(number + 1, len(waves))
    return answers


def _answer(llm: LLM, prompts: Sequence[tuple[int, str]], num_new: int) -> list[Answer]:
    recorder = Recorder()
    engine = make_engine(llm.room, llm.runner, None, False, Speculator(recorder))
    for number, prompt in prompts:
        params = SamplingParams(temperature=number % 2 * TEMPERATURE, max_tokens=num_new, seed=number)
        tokens = llm.encode_question(prompt)[: llm.max_context - num_new]
        engine.add(Request(f"{number}", tuple(tokens), params, eos_token_ids=llm.tokenizer.ids.ends))
    while engine.has_work:
        engine.step()
    llm.engine.reset()
    return [
        Answer(torch.tensor([token for token, _ in one]), torch.stack([state for _, state in one]))
        for one in (recorder.told[f"{number}"] for number, _ in prompts)
    ]


def _save(answers: Sequence[Answer], path: Path) -> None:
    arrays = {
        "tokens": torch.cat([one.tokens for one in answers]).numpy(),
        "states": torch.cat([one.states for one in answers]).view(torch.int16).numpy(),  # bits of bfloat16
        "lengths": np.array([len(one.tokens) for one in answers]),
    }
    save_arrays(arrays, path, {})


def read_answers(path: Path) -> Iterator[Answer]:
    arrays, _ = load_arrays(path)
    lengths = arrays["lengths"].tolist()
    tokens = torch.from_numpy(arrays["tokens"]).split(lengths)
    states = torch.from_numpy(arrays["states"]).view(torch.bfloat16).split(lengths)
    return (Answer(*one) for one in zip(tokens, states, strict=True))
