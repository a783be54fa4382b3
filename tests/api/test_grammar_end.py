"""An answer that its grammar's counts of work end: at the same token, with an error that nobody takes for an answer."""

from surefoot.api import LLM, RequestOutput, SamplingParams
from surefoot.sampling.grammar import lark_grammar
from tests.stories import stories_gguf

HOSTILE = lark_grammar("start: e\ne: " + " | ".join("e " * n for n in range(2, 7)) + " | /[a-z ]/ |")
PARAMS = SamplingParams(temperature=0, max_tokens=300, grammar=HOSTILE)
PROMPT = "Once upon a time there was a little girl. Once upon a time there was"


def ended(llm: LLM, *others: SamplingParams) -> RequestOutput:
    first, *_ = llm.generate([PROMPT] * (1 + len(others)), [PARAMS, *others])
    return first


def test_speculation_and_company_do_not_move_the_end() -> None:
    plain = ended(LLM(stories_gguf(), threads=1, speculate="off")).outputs[0]
    assert plain.finish_reason == "error"
    assert "simpler" in (plain.error or "")
    assert 5 < len(plain.token_ids) < 300
    for llm, others in (
        (LLM(stories_gguf(), threads=1, speculate="lookup"), ()),
        (
            LLM(stories_gguf(), threads=2, max_chunk=16, speculate="off"),
            (PARAMS, SamplingParams(seed=1, max_tokens=200)),
        ),
    ):
        again = ended(llm, *others).outputs[0]
        assert (again.token_ids, again.error, again.finish_reason) == (plain.token_ids, plain.error, "error")
