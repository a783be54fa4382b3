"""surefoot.toml."""

from pathlib import Path

import pytest

from surefoot.api.footprint import ModelOptions
from surefoot.front.catalog import Catalog
from surefoot.front.config import (
    FrontConfig,
    FrontConfigError,
    ModelEntry,
    check_names,
    read_config_file,
)
from surefoot.front.model_process import option_words
from surefoot.front.routing import AskedFor, object_in
from surefoot.server.access.shares import ANYONE, Caller
from surefoot.server.errors import ApiError

FULL = """
memory = "20GB"
max-wait = "1m"

[[model]]
name = "chat"
file = "qwen3:4b"
aliases = ["gpt-4o"]
format = "w4"
context = 4096
draft = "qwen3:0.6b"
keep-alive = "30m"
pinned = true
users = ["alice"]
kv-memory = "2GiB"
sampling = {temperature = 0.2}

[[model]]
file = "smollm2"
"""


def read(folder: Path, text: str) -> list[ModelEntry]:
    path = folder / "surefoot.toml"
    path.write_text(text)
    defaults = ModelOptions(max_context=512)
    return [table.entry(defaults, None, table.file) for table in read_config_file(path).model]


def test_file(tmp_path: Path) -> None:
    chat, titles = read(tmp_path, FULL)
    assert chat == ModelEntry(
        "chat", "qwen3:4b", ("gpt-4o",),
        ModelOptions("w4", 4096, speculate="draft:qwen3:0.6b", kv_bytes=2 << 30, sampling=("temperature=0.2",)),
        keep_alive_s=1800.0, is_pinned=True, users=("alice",),
    )  # fmt: skip
    assert titles == ModelEntry("smollm2", "smollm2", options=ModelOptions(max_context=512))
    tables = read_config_file(tmp_path / "surefoot.toml")
    assert (tables.memory, tables.max_wait) == (20 * 10**9, 60.0)


UPSTREAM = """
[[model]]
file = "a"
[[upstream]]
name = "u"
url = "https://u"
model = "m"
allows = "public"
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "model is missing"),
        ("[[model]]\nname = 'a'", "model.0.file is missing"),
        ("[[model]]\nfile = 'a'\nkeep_alive = '1m'", "unknown field model.0.keep_alive"),
        ("[[model]]\nfile = 'a'\nkeep-alive = 'soon'", "keep-alive: invalid time 'soon'"),
        ("memory = 'much'\n[[model]]\nfile = 'a'", "memory: invalid size 'much'"),
        (UPSTREAM + "price-in = 1", "both price-in and price-out"),
        (UPSTREAM + "longest-answer = 5", "give price-in and price-out"),
        (UPSTREAM + "price-in = nan\nprice-out = 1", "finite"),
        ("[[model]\n", "not valid TOML: Expected"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(FrontConfigError, match=complaint):
        read(tmp_path, text)


def test_names_are_unique() -> None:
    with pytest.raises(FrontConfigError, match="two models or routes have the name 'b'"):
        check_names(FrontConfig((ModelEntry("a", "x", aliases=("b",)), ModelEntry("b", "y"))))


def test_options_as_words() -> None:
    words = option_words(ModelOptions(max_context=512, sampling=("top_k=1",)))
    assert words == [
        "--format", "auto", "--max-context", "512", "--max-running", "32", "--speculate", "auto",
        "--sampling", "top_k=1",
    ]  # fmt: skip


# ---- names in requests ----

MODELS = [ModelEntry("secret", "x", users=("alice", "key5")), ModelEntry("chat", "y", aliases=("gpt",))]


@pytest.mark.parametrize(
    ("name", "caller", "found"),
    [
        ("chat", ANYONE, "chat"),
        ("gpt", ANYONE, "chat"),
        ("chat:latest", ANYONE, "chat"),
        (None, ANYONE, "chat"),
        (None, Caller("alice"), "secret"),
        ("secret", Caller("bob", "key5"), "secret"),
    ],
)
def test_found(name: str | None, caller: Caller, found: str) -> None:
    assert Catalog(MODELS).find(name, caller).name == found


def test_not_found() -> None:
    for name in ("other", "secret"):
        with pytest.raises(ApiError, match="use one of 'chat'") as error:
            Catalog(MODELS).find(name, Caller("bob"))
        assert error.value.status == 404
    assert Catalog(MODELS, any_name=True).find("other", Caller("bob")).name == "chat"
    with pytest.raises(ApiError):  # any name does not open what is closed
        Catalog(MODELS, any_name=True).find("secret", Caller("bob"))


@pytest.mark.parametrize(
    ("body", "name"),
    [(b'{"model": "a"}', "a"), (b'{"name": "a"}', "a"), (b"{", None), (b"[]", None), (b'{"model": 5}', None)],
)
def test_model_named_in_a_body(body: bytes, name: str | None) -> None:
    assert AskedFor.of(object_in(body), len(body)).model == name
