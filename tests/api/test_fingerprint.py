"""The fingerprint: it changes with all that can change an answer, and with nothing else."""

import inspect
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from surefoot.api import LLM
from surefoot.api import fingerprint as module
from surefoot.api.fingerprint import Fingerprint, differing_parts, fingerprint
from surefoot.api.opening import open_model
from surefoot.ops import KvForm
from surefoot.weights import PackedCache, file_digests, hash_in_background
from tests.api import embedding_gemma
from tests.stories import stories_gguf

CHATML = "<|im_start|>{{ messages[0].content }}"
# Values of each parameter of LLM, none of which may give the same fingerprint as another.
CHANGING: dict[str, list[Any]] = {
    "float_format": ["w4", "w8a8", "f32"],
    "max_context": [64, 65],
    "kv_form": [*(form for form in KvForm if form != KvForm.KEYS_TWO_LIMBS)],
    "sampling": [
        {"temperature": 0}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.5}, {"repetition_penalty": 1.5},
        {"presence_penalty": 0.5}, {"frequency_penalty": 0.5},
    ],
    "chat_template": ["chatml", "llama3"],
    "pooling": ["mean", "cls", "last"],
}  # fmt: skip
KEEPING: dict[str, list[Any]] = {
    "max_running": [1], "max_chunk": [16], "kv_bytes": [1 << 22], "block_size": [32], "prefix_caching": [False],
    "variant": ["portable"], "threads": [1, 2], "packed_cache": ["packed"], "prompt_cache": ["prompts"],
    "speculate": ["off", "lookup"], "report": [lambda done, total: None],
}  # fmt: skip
ADAPTED = {"adapter"}  # changes them too: tests/api/test_adapters.py has a model with adapters


def of(model: Path, **words: Any) -> Fingerprint:
    llm = LLM(model, **{"threads": 1, **words})
    llm.close()
    return fingerprint(llm)


def test_every_parameter_is_known_to_change_answers_or_not() -> None:
    known = CHANGING.keys() | KEEPING.keys() | ADAPTED
    parameters = set(inspect.signature(LLM).parameters) - {"model"}
    assert parameters == known, "say of a new parameter whether it can change an answer"


def test_settings_that_change_answers_change_it() -> None:
    given = [{}, *({name: value} for name, values in CHANGING.items() for value in values)]
    found = [of(stories_gguf(), **words) for words in given]
    assert len({made.settings for made in found}) == len(found)
    assert len({(made.content, made.versions) for made in found}) == 1


def test_settings_that_cannot_change_answers_do_not(tmp_path: Path) -> None:
    plain = of(stories_gguf())
    for name, values in KEEPING.items():
        for value in values:
            given = tmp_path / value if name.endswith("_cache") else value
            assert of(stories_gguf(), **{name: given}) == plain, name


def test_float_formats_promise_bits_within_a_variant_only() -> None:
    portable, other = (of(stories_gguf(), float_format="f32", variant=name) for name in ("portable", None))
    assert portable.settings != other.settings


def test_it_is_of_every_byte_and_not_of_the_place(tmp_path: Path) -> None:
    """Two fine-tunes with equal headers differ in weights only."""
    model, other = tmp_path / "model.gguf", tmp_path / "elsewhere" / "with [a] pattern.gguf"
    other.parent.mkdir()
    shutil.copy(stories_gguf(), model)
    shutil.copy(stories_gguf(), other)
    plain = of(model)
    assert of(other) == plain
    data = bytearray(other.read_bytes())
    data[-1] ^= 1
    other.write_bytes(data)
    assert of(other).content != plain.content


def test_versions_of_whatever_decides_prompts_masks_and_ids_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM(stories_gguf(), threads=1)
    found = {fingerprint(llm).versions}
    for library in module.LIBRARIES:
        with monkeypatch.context() as patch:
            patch.setattr(module, "version", lambda name, other=library: "other" if name == other else "1")
            found.add(fingerprint(llm).versions)
    for name in ("__version__", "ARITHMETIC"):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, "other")
            found.add(fingerprint(llm).versions)
    assert len(found) == 1 + len(module.LIBRARIES) + 2
    assert module.LIBRARIES == ("jinja2", "llguidance", "tokenizers")


@contextmanager
def opened_files(folder: Path) -> Iterator[set[Path]]:
    """Files of the folder that are opened in the block."""
    seen: set[Path] = set()
    is_over = False

    def watch(event: str, words: tuple[Any, ...]) -> None:  # an audit hook cannot be removed
        if not is_over and event == "open" and isinstance(words[0], str) and folder in Path(words[0]).parents:
            seen.add(Path(words[0]))

    sys.addaudithook(watch)
    yield seen
    is_over = True


def test_every_file_of_a_folder_that_loading_reads_is_hashed(tmp_path: Path) -> None:
    folder = embedding_gemma.save(tmp_path / "model")
    for name, text in {
        "chat_template.jinja": CHATML, "tokenizer_config.json": "{}", "generation_config.json": '{"top_k": 3}',
        "chat_template.json": "{}", "additional_chat_templates/tool_use.jinja": CHATML, "special_tokens_map.json": "{}",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with opened_files(folder) as read:
        LLM(folder, threads=1, max_running=1).close()
    assert len(read) > 8
    assert {file for file in read if file.is_file()} <= set(file_digests._all_files(folder))
    plain = fingerprint(LLM(folder, threads=1, max_running=1)).content
    for name in ("3_Dense/model.safetensors", "tokenizer.json"):
        file = folder / name
        before = file.read_bytes()
        file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert hash_in_background(folder, None).result().content != plain
        file.write_bytes(before)
    (folder / "README.md").write_text("words")
    assert fingerprint(LLM(folder, threads=1, max_running=1)).content == plain


def test_hashes_are_remembered_while_the_file_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = tmp_path / "model.gguf", PackedCache(tmp_path / "packed")
    shutil.copy(stories_gguf(), model)
    reads: list[Any] = []
    digest = file_digests.hashlib.file_digest
    monkeypatch.setattr(
        file_digests.hashlib, "file_digest", lambda stream, how: reads.append(stream.name) or digest(stream, how)
    )
    before = os.umask(0o002)  # as many systems set it
    first = hash_in_background(model, cache).result()
    os.umask(before)
    assert hash_in_background(model, cache).result() == first
    assert len(reads) == 1
    model.write_bytes(model.read_bytes()[:-1] + b"\xff")
    changed = hash_in_background(model, cache).result()
    assert changed != first
    assert len(reads) == 2
    (notes,) = cache.folder.glob("*.digests")
    notes.write_text("[broken")
    assert hash_in_background(model, cache).result() == changed
    assert hash_in_background(model, PackedCache(model / "no folder")).result() == changed
    assert len(reads) == 4


def test_files_that_cannot_be_read_fail_the_one_who_asks(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(stories_gguf(), model)
    llm = LLM(open_model(model), threads=1)
    model.unlink()
    model.symlink_to(tmp_path / "gone")
    with pytest.raises(OSError, match="model"):
        fingerprint(llm)


def test_a_difference_is_named() -> None:
    one = Fingerprint("a", "b", "c")
    assert differing_parts(str(one), str(Fingerprint("x", "b", "c"))) == "model files"
    assert differing_parts(str(one), str(Fingerprint("a", "x", "y"))) == "settings and versions"
    assert differing_parts(str(one), "") == "fingerprint"
