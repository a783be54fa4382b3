"""Drafters that say what a test wants, and requests with grammars."""

import functools
from collections.abc import Callable, Mapping, Sequence

from surefoot.api import LLM
from surefoot.core import Request, SampleKey, SamplingParams
from surefoot.engine import Engine
from surefoot.kv import KvGroup, KvLayout, KvManager
from surefoot.runner import Executor, Runner, SessionRunner
from surefoot.sampling import Grammars
from surefoot.sampling.grammar import json_grammar, regex_grammar
from surefoot.scheduler import Scheduler, SchedulerConfig
from surefoot.speculate import Drafter, DraftOffer, Speculator
from surefoot.verify.drafters import RULES, ScriptedDrafter
from tests.engine.engine import Answers, backend, model, run
from tests.stories import stories_gguf

CONFIG = SchedulerConfig(max_context=512, max_running=16, max_chunk=64, max_step_tokens=256)


LAYOUT = KvLayout(16, (KvGroup(640),))


SCHEMA = {
    "type": "object", "required": ["name", "age"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
}  # fmt: skip


class FixedDepth:
    """A DepthChooser that always chooses the same depth."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None: ...
    def observe_drafting(self, depth: int, elapsed_ms: float) -> None: ...
    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None: ...
    def forget(self, key: SampleKey) -> None: ...
    def can_pay(self, num_tokens: int) -> bool:
        return True

    def depths(self, offers: Mapping[SampleKey, DraftOffer], num_tokens: int) -> dict[SampleKey, int]:
        return {key: min(self._depth, offer.max_depth) for key, offer in offers.items() if offer.max_depth}


@functools.cache
def grammars() -> Grammars:
    tokenizer = LLM(stories_gguf(), threads=1, max_context=64).tokenizer
    return Grammars(tokenizer, tokenizer.ids.ends)


def make_engine(speculator: Speculator | None, with_grammars: bool = False) -> Engine:
    blocks = {group.window: group.num_blocks for group in LAYOUT.groups}
    runner = Runner(backend(), model(), CONFIG.max_context, blocks, 64, block_size=16)
    executor = Executor(runner, grammars() if with_grammars else None, speculator)
    return Engine(lambda: Scheduler(CONFIG, KvManager(LAYOUT)), executor)


def truth_of(answers: Answers) -> dict[SampleKey, Sequence[int]]:
    return {key: tokens for key, (tokens, _, _) in answers.items()}


def scripted(answers: Answers, name: str) -> Callable[[], Drafter]:
    return functools.partial(ScriptedDrafter, truth_of(answers), RULES[name], 512)


def draft_runner(num_tokens: int = 4096) -> SessionRunner:
    return SessionRunner.make(backend(), model(), num_tokens, 16, block_size=16)


def grammar_requests() -> list[Request]:
    kinds = [
        SamplingParams(seed=1, grammar=regex_grammar("[a-z ]{3,30}"), max_tokens=40, logprobs=1),
        SamplingParams(temperature=0, grammar=regex_grammar("[a-z ,.]{20,60}"), max_tokens=40, logprobs=0),
        SamplingParams(seed=3, grammar=regex_grammar("[b-y ]{5,25}"), max_tokens=30, frequency_penalty=0.5, n=2),
        SamplingParams(seed=4, grammar=json_grammar(SCHEMA), max_tokens=60, logprobs=0),
    ]
    eos = frozenset({2})
    return [Request(f"g{number}", (1, 403, 407), kind, eos_token_ids=eos) for number, kind in enumerate(kinds)]


@functools.cache
def grammar_answers() -> Answers:
    return run(make_engine(None, with_grammars=True), grammar_requests())
