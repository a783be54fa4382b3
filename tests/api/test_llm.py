"""LLM on stories260K: lists, conversations, streams, and what goes wrong."""

import functools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import surefoot
from surefoot import LLM, SamplingParams
from surefoot.api import RequestOutput
from surefoot.engine import MemoryRequest, plan_memory
from surefoot.text import ChatTemplateError
from tests.stories import stories_gguf

GREEDY = SamplingParams(temperature=0, max_tokens=40)
STORY = ", there was a little girl named Lily. She loved to play outside in the park. One day, she"


@functools.cache
def llm() -> LLM:
    return LLM(stories_gguf(), threads=2, pooling="mean")


def facts(output: RequestOutput) -> tuple:
    """All that the exactness contract covers; counts of cached or drafted tokens are not part of it."""
    return output.prompt_token_ids, output.outputs, output.usage.num_generated


def test_a_story() -> None:
    (output,) = llm().generate("Once upon a time", GREEDY)
    answer = output.outputs[0]
    assert output.text == answer.text
    assert answer.text.startswith(STORY)
    assert answer.finish_reason == "length"
    assert len(answer.token_ids) == output.usage.num_generated == 40
    assert answer.logprobs is None
    assert output.prompt == "Once upon a time"
    assert output.prompt_token_ids == tuple(llm().tokenizer.encode("Once upon a time"))
    assert 0 <= output.timings.queued <= output.timings.to_first_token <= output.timings.total


def test_prompts_of_every_kind() -> None:
    tokens = llm().tokenizer.encode("Once upon a time")
    both = llm().generate(["Once upon a time", tokens], GREEDY)
    assert facts(both[0]) == facts(both[1]) == facts(llm().generate(tokens, GREEDY)[0])
    assert both[1].prompt is None
    assert llm().generate([], GREEDY) == []


@pytest.mark.parametrize("ids", [[1.5, 5], [5, 1.5], [5.0], [True, 5], [5, "a"], [5, None], [1, 2.0, 3]], ids=str)
def test_token_ids_must_be_integers(ids: list) -> None:
    for prompts in (ids, [ids], ["Once", ids]):
        with pytest.raises(ValueError, match="whole numbers"):
            llm().generate(prompts, GREEDY)
    with pytest.raises(ValueError, match="whole numbers"):
        llm().embed([ids])
    with pytest.raises(ValueError, match="whole numbers"):
        llm().submit(ids, GREEDY)
    with pytest.raises(ValueError, match="whole numbers"):
        llm().stream(ids, GREEDY)


def test_token_ids_of_other_libraries_are_accepted() -> None:
    tokens = llm().tokenizer.encode("Once upon a time")
    assert facts(llm().generate(list(np.array(tokens)), GREEDY)[0]) == facts(llm().generate(tokens, GREEDY)[0])


def test_decode_refuses_fractions() -> None:
    for ids in ([1.5, 5], [2.0], [1e9]):
        with pytest.raises(TypeError):
            llm().tokenizer.decode(ids)


def test_many_prompts_are_answered_in_order() -> None:
    prompts = [f"Once upon a time there was a {name}" for name in ("dog", "cat", "big red bus", "girl", "boy")] * 3
    params = [SamplingParams(seed=number, max_tokens=5 + number, logprobs=1) for number in range(15)]
    together = llm().generate(prompts, params, use_tqdm=True)
    alone = [llm().generate(prompt, prompt_params)[0] for prompt, prompt_params in zip(prompts, params, strict=True)]
    assert [facts(output) for output in together] == [facts(output) for output in alone]
    assert [output.prompt for output in together] == prompts


def test_a_seed_repeats_an_answer_and_no_seed_does_not() -> None:
    free = SamplingParams(temperature=1.5, max_tokens=20)
    first, second = llm().generate(["Once"] * 2, free)
    assert first.seed != second.seed
    assert first.text != second.text
    again = llm().generate("Once", SamplingParams(temperature=1.5, max_tokens=20, seed=first.seed))[0]
    assert facts(again) == facts(first)


def test_several_samples() -> None:
    (output,) = llm().generate("Once", SamplingParams(seed=3, n=4, max_tokens=15))
    assert [sample.index for sample in output.outputs] == [0, 1, 2, 3]
    assert len({sample.text for sample in output.outputs}) == 4
    assert output.usage.num_generated == 60
    (single,) = llm().generate("Once", SamplingParams(seed=3, max_tokens=15))
    assert single.outputs[0] == output.outputs[0]


def test_logprobs() -> None:
    (output,) = llm().generate("Once upon a time", SamplingParams(temperature=0, max_tokens=6, logprobs=3))
    answer = output.outputs[0]
    assert answer.logprobs is not None
    assert len(answer.logprobs) == 6
    for token, values in zip(answer.token_ids, answer.logprobs, strict=True):
        assert values[token].rank == 1
        assert len(values) == 3
        assert sorted((value.logprob for value in values.values()), reverse=True)[0] == values[token].logprob
        assert sum(math.exp(value.logprob) for value in values.values()) <= 1.0001
    texts = [values[token].decoded_token for token, values in zip(answer.token_ids, answer.logprobs, strict=True)]
    assert "".join(texts) == answer.text
    (without_alternatives,) = llm().generate(
        "Once upon a time", SamplingParams(temperature=0, max_tokens=6, logprobs=0)
    )
    assert without_alternatives.outputs[0].logprobs is not None
    assert all(len(values) == 1 for values in without_alternatives.outputs[0].logprobs)


@pytest.mark.parametrize("stop", [" girl", "named Lily.", "irl na", "a little"])
def test_stop_strings(stop: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=40, stop=(stop, "never seen"), logprobs=0)
    (output,) = llm().generate("Once upon a time", params)
    answer = output.outputs[0]
    assert answer.text == STORY.partition(stop)[0]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", stop)
    assert answer.logprobs is not None
    assert len(answer.logprobs) == len(answer.token_ids) == output.usage.num_generated
    assert stop in llm().tokenizer.decode(answer.token_ids, continues=True)
    pieces = list(llm().stream("Once upon a time", params))
    assert "".join(piece.text for piece in pieces) == answer.text
    assert facts(pieces[-1].output) == facts(output)
    assert not llm().engine.has_work


def test_a_partial_stop_string_at_the_end_is_text() -> None:
    params = SamplingParams(temperature=0, max_tokens=10, stop=("Lilyputh", "a little girl named Bo"))
    pieces = list(llm().stream("Once upon a time", params))
    whole = llm().generate("Once upon a time", SamplingParams(temperature=0, max_tokens=10))[0].text
    assert "".join(piece.text for piece in pieces) == whole
    assert pieces[-1].finish_reason == "length"


def test_stop_tokens_are_no_text() -> None:
    (plain,) = llm().generate("Once upon a time", GREEDY)
    tokens = plain.outputs[0].token_ids
    params = SamplingParams(temperature=0, max_tokens=40, stop_token_ids=(tokens[7],))
    (output,) = llm().generate("Once upon a time", params)
    end = tokens.index(tokens[7])
    assert output.outputs[0].token_ids == tokens[: end + 1]
    assert output.outputs[0].stop_reason == tokens[7]
    assert output.text == llm().tokenizer.decode(tokens[:end], continues=True)


def test_streamed_text_equals_generated_text() -> None:
    params = SamplingParams(seed=4, n=2, max_tokens=25, logprobs=2)
    (output,) = llm().generate("One day", params)
    pieces = list(llm().stream("One day", params))
    for answer in output.outputs:
        streamed = [piece for piece in pieces if piece.index == answer.index]
        assert "".join(piece.text for piece in streamed) == answer.text
        assert tuple(token for piece in streamed for token in piece.token_ids) == answer.token_ids
        assert tuple(values for piece in streamed for values in piece.logprobs or ()) == answer.logprobs
        assert [piece.finish_reason for piece in streamed if piece.finish_reason] == ["length"]
    assert [piece.output is not None for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert facts(pieces[-1].output) == facts(output)


def test_two_concurrent_streams_and_one_abandoned() -> None:
    (expected,) = llm().generate("One day", GREEDY)
    first, second = llm().stream("One day", GREEDY), llm().stream("Once upon a time", GREEDY)
    text = next(first).text
    next(second)
    next(second)
    second.close()
    text += "".join(piece.text for piece in first)
    assert text == expected.text
    llm().generate("One day", GREEDY)
    assert not llm().engine.has_work


def test_an_interrupted_step_leaves_a_usable_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, steps = LLM(stories_gguf(), threads=2), iter(range(5))
    honest = model.runner.forward

    def interrupted(flat: object) -> object:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return honest(flat)

    monkeypatch.setattr(model.runner, "forward", interrupted)
    other = model.stream("One day", GREEDY)
    next(other)
    with pytest.raises(KeyboardInterrupt):
        model.generate(["Once"] * 3, GREEDY)
    monkeypatch.undo()
    assert not model.engine.has_work
    with pytest.raises(RuntimeError, match="start it anew"):
        list(other)
    assert facts(model.generate("One day", GREEDY)[0]) == facts(llm().generate("One day", GREEDY)[0])


def test_a_failed_request_reports_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LLM(stories_gguf(), threads=2)

    def fail(flat: object) -> object:
        raise RuntimeError("no luck")

    monkeypatch.setattr(model.runner, "forward", fail)
    (output,) = model.generate("Once", GREEDY)
    assert output.outputs[0].finish_reason == "error"
    assert output.outputs[0].error == "RuntimeError: no luck"


def test_chat() -> None:
    messages = [{"role": "user", "content": "Once upon"}, {"role": "user", "content": "a time"}]
    (output,) = llm().chat(messages, GREEDY)
    assert output.prompt == "<s>Once upon a time"
    assert output.outputs[0].token_ids == llm().generate("Once upon a time", GREEDY)[0].outputs[0].token_ids
    assert [facts(answer) for answer in llm().chat([messages, messages], GREEDY)] == [facts(output)] * 2
    pieces = list(llm().stream(messages, GREEDY))
    assert "".join(piece.text for piece in pieces) == output.text


def test_user_text_never_becomes_a_control_token() -> None:
    assert llm().tokenizer.ids.eos not in llm()._request("a</s>b", None).prompt


def test_a_file_without_a_template_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm().chat_template, "templates", {})
    with pytest.raises(ChatTemplateError, match="no chat template"):
        llm().chat([{"role": "user", "content": "hello"}], GREEDY)


def test_a_question_is_rendered_by_the_chat_template(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llm()
    monkeypatch.setattr(model.chat_template, "templates", {"default": "<s>Question: {{ messages[0]['content'] }}"})
    assert model.encode_question("Hi") == model.tokenizer.encode("Question: Hi")
    monkeypatch.setattr(model.chat_template, "templates", {})
    assert model.encode_question("Hi") == model.tokenizer.encode("Hi")


@pytest.mark.parametrize(
    ("prompt", "params", "words"),
    [
        ("a " * 600, GREEDY, "shorten the prompt"),
        ("a", SamplingParams(n=50), "lower n"),
        ([600], GREEDY, "beyond the vocabulary"),
        ([-1], GREEDY, "not negative"),
        (["a", "b"], [GREEDY], "2 prompts, but 1"),
    ],
    ids=["prompt", "n", "token", "negative", "counts"],
)
def test_refusals_of_requests_say_what_to_do(prompt: object, params: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        llm().generate(prompt, params)  # type: ignore[arg-type]
    assert not llm().engine.has_work


def test_one_invalid_prompt_refuses_all() -> None:
    with pytest.raises(ValueError, match="shorten"):
        llm().generate(["Once", "a " * 600], GREEDY)
    llm().generate("One day", GREEDY)
    assert not llm().engine.has_work


def test_missing_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="give the path of"):
        LLM(tmp_path / "none.gguf")
    with pytest.raises(FileNotFoundError, match="a folder without"):
        LLM(tmp_path)
    (tmp_path / "a.gguf").touch()
    (tmp_path / "b.gguf").touch()
    with pytest.raises(FileNotFoundError, match=r"give one of a\.gguf, b\.gguf"):
        LLM(tmp_path)
    with pytest.raises(ValueError, match="choose one of w8"):
        LLM(stories_gguf(), float_format="w9")


def test_packed_weights_from_a_cache_give_the_same(tmp_path: Path) -> None:
    for _ in range(2):
        outputs = LLM(stories_gguf(), packed_cache=tmp_path, max_context=64).generate("One day", GREEDY)
        assert outputs[0].outputs[0].token_ids == llm().generate("One day", GREEDY)[0].outputs[0].token_ids
    assert len(list(tmp_path.iterdir())) == 1


def test_memory_is_divided_and_never_exceeded() -> None:
    model = llm().model
    sizes = {0: 1000}

    def plan(nbytes: int, max_context: int | None = None) -> tuple[int, int]:
        request = MemoryRequest(sizes, nbytes, max_context, max_running=8, max_chunk=512)
        capacity = plan_memory(model, request, "portable")
        assert capacity.layout.total_bytes <= nbytes
        return capacity.scheduling.max_context, capacity.layout.groups[0].num_blocks

    assert plan(10**9) == (512, 8 * 32)  # at most what all requests can use
    assert plan(1_100_000) == (512, 68)
    assert plan(300_000) == (256, 18)
    with pytest.raises(MemoryError, match="lower max_context"):
        plan(300_000, 512)
    with pytest.raises(MemoryError):
        plan(10_000)


def test_bytes_of_a_token() -> None:
    """260 thousand weights at W8 with scales, and the keys and values before it."""
    weights = llm().read_bytes(0)
    assert 260_000 < weights < 450_000
    assert (llm().read_bytes(100) - weights) * 2 == llm().read_bytes(200) - weights > 0
    assert llm().measure_bandwidth(0.01) > 1e8


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    tiny = pytest.importorskip("tests.models.tiny")
    tokenizers = pytest.importorskip("tokenizers")
    tiny.reference("gemma3").save_pretrained(tmp_path)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({text: number for number, text in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = LLM(tmp_path, max_context=256, max_chunk=16, max_running=2)
    params = [SamplingParams(temperature=0, max_tokens=90), SamplingParams(seed=1, max_tokens=60)] * 2
    together = model.generate(["windows of two dozen tokens slide along"] * 4, params)
    alone = LLM(tmp_path, max_context=256, max_chunk=64, max_running=1).generate(
        ["windows of two dozen tokens slide along"] * 2, params[:2]
    )
    assert [facts(output) for output in together] == [facts(output) for output in alone] * 2
    with pytest.raises(ChatTemplateError):
        model.chat([{"role": "user", "content": "no template here"}])


@pytest.mark.parametrize("code", ["import surefoot", "from surefoot import SamplingParams", "import surefoot.core"])
def test_light_imports_stay_light(code: str) -> None:
    check = f"import sys; {code}; sys.exit(bool({{'numpy', 'rich', 'tokenizers'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_unknown_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LLm'"):
        surefoot.LLm  # noqa: B018
