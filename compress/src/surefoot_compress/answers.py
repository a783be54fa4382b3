"""Training data of a draft head: the target's own answers, with the hidden state that each token was sampled from.

Decoding many answers in one batch costs as much as prefilling the same number of tokens, and yields the states too.
Answers are written in waves, one file each, so that an interrupted run resumes with the next wave.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.api import LLM, SamplingParams
from surefoot.core import Request, SampleKey
from surefoot.engine import make_engine
from surefoot.speculate import NO_DRAFT, DraftOffer, Speculator, TargetRow
from surefoot_compress.arrays import load_arrays, save_arrays
from surefoot_compress.lazy_torch import Tensor, torch

WAVE = 64  # answers decoded in one batch: 64 rows of a step cost little more than 32
TEMPERATURE = 0.8  # of every second answer; the other answers are greedy


@dataclass(frozen=True)
class RecordedAnswer:
    """One answer of the target."""

    tokens: Tensor  # [n], in order
    states: Tensor  # [n, width], bfloat16: the final hidden state that each token was sampled from


class StateRecorder:
    """A Drafter that never drafts. It records each sampled token with its hidden state, by request id."""

    def __init__(self) -> None:
        self.recorded: dict[str, list[tuple[int, Tensor]]] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None: ...
    def end(self, key: SampleKey) -> None: ...

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        if row is not None:
            state = torch.tensor(row.hidden, dtype=torch.bfloat16)
            self.recorded.setdefault(key.request, []).append((tokens[-1], state))

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        return [NO_DRAFT] * len(keys)

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        return {}


def write_answers(
    llm: LLM, prompts: Sequence[str], num_new: int, folder: Path, report: Callable[[int, int], None]
) -> list[RecordedAnswer]:
    """The answers to all prompts, each of at most `num_new` tokens. `report` gets the waves done and the total."""
    folder.mkdir(parents=True, exist_ok=True)
    numbered = list(enumerate(prompts))
    waves = [numbered[start : start + WAVE] for start in range(0, len(numbered), WAVE)]
    answers: list[RecordedAnswer] = []
    for number, wave in enumerate(waves):
        path = folder / f"{number:04}.safetensors"
        if not path.exists():
            _save(_answer(llm, wave, num_new), path)
        answers += read_answers(path)
        report(number + 1, len(waves))
    return answers


def _answer(llm: LLM, prompts: Sequence[tuple[int, str]], num_new: int) -> list[RecordedAnswer]:
    recorder = StateRecorder()
    engine = make_engine(llm.capacity, llm.runner, None, False, Speculator(recorder))
    for number, prompt in prompts:
        params = SamplingParams(temperature=number % 2 * TEMPERATURE, max_tokens=num_new, seed=number)
        tokens = llm.encode_question(prompt)[: llm.max_context - num_new]
        engine.add(Request(f"{number}", tuple(tokens), params, eos_token_ids=llm.tokenizer.ids.ends))
    while engine.has_work:
        engine.step()
    llm.engine.reset()
    return [
        RecordedAnswer(torch.tensor([token for token, _ in answer]), torch.stack([state for _, state in answer]))
        for answer in (recorder.recorded[f"{number}"] for number, _ in prompts)
    ]


def _save(answers: Sequence[RecordedAnswer], path: Path) -> None:
    arrays = {
        "tokens": torch.cat([answer.tokens for answer in answers]).numpy(),
        "states": torch.cat([answer.states for answer in answers]).view(torch.int16).numpy(),  # bits of bfloat16
        "lengths": np.array([len(answer.tokens) for answer in answers]),
    }
    save_arrays(arrays, path, {})


def read_answers(path: Path) -> Iterator[RecordedAnswer]:
    """The answers of one wave's file."""
    arrays, _ = load_arrays(path)
    lengths = arrays["lengths"].tolist()
    tokens = torch.from_numpy(arrays["tokens"]).split(lengths)
    states = torch.from_numpy(arrays["states"]).view(torch.bfloat16).split(lengths)
    return (RecordedAnswer(*pair) for pair in zip(tokens, states, strict=True))
