"""Chat templates that replace the model's, by file or by name."""

from pathlib import Path

import pytest

from surefoot.text import TEMPLATE_NAMES, ChatTemplate, ChatTemplateError, TemplateLimits, find_template

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]
# As the models' publishers write the formats down.
EXPECTED = {
    "alpaca": "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello</s>\n\n### Instruction:\nBye\n\n"
    "### Response:\n",
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    "Hello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
    "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "llama2": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST] Be brief.\n\nHi[/INST] Hello</s>[INST] Bye[/INST]",
    "phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n"
    "<|assistant|>\n",
    "vicuna": "Be brief.\n\nUSER: Hi\nASSISTANT: Hello</s>\nUSER: Bye\nASSISTANT:",
    "zephyr": "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n"
    "<|assistant|>\n",
}


def test_every_name_has_its_format() -> None:
    assert sorted(EXPECTED) == sorted(TEMPLATE_NAMES)
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    chat = ChatTemplate({name: find_template(name) for name in TEMPLATE_NAMES}, tokens)
    for name in TEMPLATE_NAMES:
        chat.templates["default"] = chat.templates[name]
        assert chat.render(TALK) == EXPECTED[name], name
        alone = chat.render(TALK[1:2], add_generation_prompt=False)
        assert "Hi" in alone
        assert "Be brief." not in alone
    chat.close()


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "chatml"
    file.write_text("{{ messages[0].content }}!")
    assert find_template(file) == "{{ messages[0].content }}!"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "one of alpaca, chatml"),
        (b"{% for", "not valid Jinja"),
        (b"{{ messages[0].no.such }}", "failed"),
        (b"{{ ''.__class__.mro() }}", "may not do"),
        (b"\xff\xfe", "UTF-8"),
        (b" " * (4 * TemplateLimits.template_characters + 1), "unreasonably long"),
    ],
)
def test_invalid_files_are_refused_before_loading(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "template.jinja"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ChatTemplateError, match=words):
        find_template(file)


def test_only_regular_files(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(ChatTemplateError, match="no such chat template"):
            find_template(path)
