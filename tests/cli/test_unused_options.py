"""Every option of a command is honoured by each way of running it, or refused with a sentence. A new option needs a
line here."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from surefoot.api import opening
from surefoot.api.footprint import ModelOptions
from surefoot.cli import generate, one_user, run_batch, serve, serve_many
from surefoot.cli.main import app
from surefoot.cli.options import OF_ONE_MODEL
from surefoot.cli.serve_many import SHARED
from surefoot.core.request import SETTABLE
from surefoot.front.config import ConfigTables, ModelTable, RouteTable, RuleTable, UpstreamTable
from surefoot.front.model_process import option_words
from surefoot.front.routing import Route, RouteRule
from surefoot.machine import Placement
from surefoot.server.access.sure_check import SureRule
from surefoot.weights import open_checkpoint
from tests.stories import stories_gguf

Options = dict[str, tuple[str, ...]]
Prepare = Callable[[pytest.MonkeyPatch, "Handed"], None]


class Reached(Exception):
    """The command has come to what it would run."""


class Handed:
    """What a command hands on."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def note(self, *words: Any, **named: Any) -> SimpleNamespace:
        self.values.append(shown((words, named)))
        return SimpleNamespace(close=lambda: None)

    def end(self, *words: Any, **named: Any) -> None:
        self.note(*words, **named)
        raise Reached


def shown(value: Any) -> Any:
    """A value as text, without what differs from call to call."""
    if isinstance(value, Mapping):
        return {key: shown(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shown(inner) for inner in value]
    if type(value).__name__ == "OpenModel":
        return shown((value.path, value.sampling, value.template_override, value.pooling, value.adapter))
    text = re.sub(r" at 0x\w+|fd=\d+|, \d+\)", "", repr(value))
    plain = {name: repr(inner) for name, inner in vars(value).items() if isinstance(inner, Path | int | str)} if (
        text.startswith("<") and hasattr(value, "__dict__") and not callable(value)
    ) else {}  # fmt: skip
    return text, plain


def serving(patch: pytest.MonkeyPatch, handed: Handed) -> None:
    patch.setattr(serve, "choose_placement", lambda threads: Placement(reason="one node"))
    patch.setattr(serve, "KeyStore", handed.note)
    patch.setattr(serve, "state_opener", lambda *words: (handed.note(*words), lambda: None)[1])


def opening_any(patch: pytest.MonkeyPatch) -> None:
    """The model at hand has no adapters."""
    patch.setattr(opening, "open_checkpoint", lambda path, adapter: open_checkpoint(path))


def one_model(patch: pytest.MonkeyPatch, handed: Handed) -> None:
    serving(patch, handed)
    opening_any(patch)
    patch.setattr(serve, "LLM", handed.note)
    patch.setattr(serve, "fingerprint", lambda llm: "fingerprint")
    imported = SimpleNamespace(serve=handed.end, join_fleet=print)  # print: any function
    patch.setattr(serve, "import_in_background", lambda name: lambda: imported)


def many_models(patch: pytest.MonkeyPatch, handed: Handed) -> None:
    serving(patch, handed)
    patch.setattr(serve_many, "serve_many", handed.end)


def local_batch(patch: pytest.MonkeyPatch, handed: Handed) -> None:
    opening_any(patch)
    patch.setattr(run_batch, "LLM", handed.note)
    patch.setattr(run_batch, "run", handed.end)


def fleet_batch(patch: pytest.MonkeyPatch, handed: Handed) -> None:
    patch.setattr(run_batch, "run_batch_on_fleet", handed.end)


def run(prepare: Prepare, *words: str) -> tuple[list[Any] | None, str]:
    """What is handed on; None, and what is told instead."""
    handed = Handed()
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch, handed)
        ran = CliRunner().invoke(app, words)
    return (handed.values, "") if isinstance(ran.exception, Reached) else (None, ran.output + str(ran.exception))


def check(prepare: Prepare, words: list[str], options: Options, refused: set[str]) -> dict[str, list[Any]]:
    """What is handed on for each option that is not refused."""
    plain, told = run(prepare, *words)
    assert plain is not None, told
    assert run(prepare, *words)[0] == plain
    found = {"": plain}
    for option, values in options.items():
        handed, told = run(prepare, *words, option, *values)
        if option in refused:
            assert handed is None, f"{option} is ignored"
            assert option in told, told
        else:
            assert handed is not None, (option, told)
            assert handed != plain, f"{option} is ignored"
            found[option] = handed
    return found


def names(command: str) -> set[str]:
    group: Any = typer.main.get_command(app)
    parameters = group.get_command(typer.Context(group), command).params
    return {parameter.opts[0] for parameter in parameters if parameter.opts[0].startswith("-")} - {"--help"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef")
    (tmp_path / "config").write_text(f'[[model]]\nfile = "{stories_gguf()}"\nname = "other"\n')
    return tmp_path


FRONT, MODELS, BOTH, REFUSED = "the front process", "the models' processes", "both", "refused"
# Options of `surefoot serve`, a value that is not the default, and who must learn of it if there are several models.
# PATH stands for the folder of the test.
SERVE = {
    "--host": ("localhost", FRONT), "--model-name": ("a", REFUSED), "--any-model-name": ("", FRONT),
    "--strict-parameters": ("", MODELS), "--keys": ("PATH/keys", FRONT), "--max-context": ("64", MODELS),
    "--max-running": ("3", MODELS), "--max-queue": ("3", BOTH), "--deadline-s": ("3", BOTH), "--drain-s": ("3", FRONT),
    "--max-body-bytes": ("2048", BOTH), "--allowed-host": ("a", FRONT), "--allowed-origin": ("a", FRONT),
    "--tls-cert": ("PATH/tls", FRONT), "--tls-key": ("PATH/tls --tls-cert PATH/tls", FRONT),
    "--audit-log": ("PATH/audit", BOTH), "--audit-required": ("--audit-log PATH/audit", BOTH),
    "--access-log": ("PATH/access", FRONT), "--state-dir": ("PATH/state", FRONT), "--max-file-bytes": ("2048", FRONT),
    "--max-state-bytes": ("2048", FRONT), "--public-prefix": ("PATH/key", MODELS), "--fleet-key": ("PATH/key", REFUSED),
    "--memory": ("1GB", FRONT), "--keep-alive": ("30m", FRONT), "--max-wait": ("3s", FRONT),
    "--kv-memory": ("1MB", MODELS), "--nodes": ("split", REFUSED), "--threads": ("1", BOTH),
    "--variant": ("portable", BOTH), "--speculate": ("off", MODELS), "--format": ("w4", MODELS),
    "--sampling": ("top_k=3", MODELS), "--chat-template": ("chatml", MODELS), "--pooling": ("mean", MODELS),
    "--adapter": ("separation", MODELS), "--packed-cache": ("off", MODELS), "--cache-dir": ("none", MODELS),
    "--cache-disk": ("1MB", MODELS), "--cache-key-file": ("PATH/key", MODELS),
}  # fmt: skip
CONFIG, SETTINGS, WORDS, VARIANT, CORES = 0, 1, 5, 6, 7  # arguments of serve_many
FRONTS = (SETTINGS, VARIANT, CORES, CONFIG)


def options(folder: Path) -> Options:
    return {option: tuple(value.replace("PATH", str(folder)).split()) for option, (value, _) in SERVE.items()}


def test_every_option_of_serve_has_a_line() -> None:
    elsewhere = {"--port", "--config", "--behind"}  # given in each test below, or by the front process
    assert SERVE.keys() | elsewhere == names("serve")


def test_one_model(folder: Path) -> None:
    words = ["serve", str(stories_gguf()), "--port", "0"]
    check(one_model, words, options(folder), {"--memory", "--keep-alive", "--max-wait", "--nodes"})


def test_several_models(folder: Path) -> None:
    words = ["serve", str(stories_gguf()), "--config", str(folder / "config"), "--port", "0"]
    refused = {option for option, (_, who) in SERVE.items() if who == REFUSED}
    found = check(many_models, words, options(folder), refused)
    *before, (plain, _) = found.pop("")
    for option, (*opened, (given, _)) in found.items():
        who = SERVE[option][1]
        knows_front = opened != before or any(given[part] != plain[part] for part in FRONTS)
        knows_models = given[WORDS] != plain[WORDS] or given[CONFIG] != plain[CONFIG]
        assert knows_front or who == MODELS, option
        assert knows_models or who == FRONT, option


def test_a_models_process_takes_what_the_front_gives_it() -> None:
    """It is a server of one model."""
    assert not SHARED & OF_ONE_MODEL.keys()
    every = option_words(ModelOptions("w8", 1, 1, "off", 1, "mean", "chatml", ("top_k=1",), "separation"))
    assert {word for word in every if word.startswith("--")} <= names("serve")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["serve", "x", "--audit-required"], "--audit-log"),
        (["serve", "x", "--cache-dir", "none", "--cache-disk", "1GB"], "keeps nothing"),
        (["serve", "x", "--cache-dir", "none", "--cache-key-file", "x"], "keeps nothing"),
        (["generate", "x", "Hi", "--chat-template", "chatml"], "--chat"),
        (["generate", "x", "Hi", "--logprobs", "2"], "--json"),
    ],
)
def test_options_that_need_another(words: list[str], told: str) -> None:
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 1
    assert told in ran.output


def test_every_key_of_the_config_file() -> None:
    file = {"file": "f"}
    values = {
        "name": "n", "aliases": ["a"], "format": "w4", "context": 9, "max-running": 9, "draft": "d", "kv-memory": 9,
        "pooling": "mean", "adapter": "separation", "chat-template": "chatml", "sampling": {"top_k": 3},
        "keep-alive": 9, "pinned": True, "users": ["u"],
    }  # fmt: skip
    aliases = {info.alias for info in ModelTable.model_fields.values()}
    assert values.keys() | file.keys() == aliases
    made = [ModelTable.model_validate({**file, key: value}) for key, value in values.items()]
    entries = [table.entry(ModelOptions(), None, "default") for table in (ModelTable(**file), *made)]
    assert len({repr(entry) for entry in entries}) == len(entries)
    assert {info.alias for info in ConfigTables.model_fields.values()} == {
        "model", "memory", "max-wait", "route", "upstream", "private-patterns",
    }  # fmt: skip


def test_every_key_of_a_route() -> None:
    conditions = {"longer-than": 9, "tools": True, "schema": True, "users": ["u"], "headers": {"a": "b"}}
    assert {"model", *conditions} == {info.alias for info in RuleTable.model_fields.values()}
    rules = [RuleTable.model_validate({"model": "m", key: value}).rule() for key, value in conditions.items()]
    assert len({repr(rule) for rule in rules}) == len(rules)
    sure = {"tokens": 1, "mean-logprob": -1.0}
    given = {"name": "n", "models": ["a", "b"], "sure": sure, "rule": [{"model": "m", "tools": True}]}
    assert given.keys() == {info.alias for info in RouteTable.model_fields.values()}
    route = RouteTable.model_validate(given).route()
    assert route == Route("n", ("a", "b"), SureRule.model_validate(sure), (RouteRule("m", tools=True),))


def test_every_key_of_an_upstream() -> None:
    given = {"name": "n", "url": "https://u", "model": "m", "allows": "public"}
    more = {"key-env": "K", "timeout": 9, "allows": "internal", "name": "o", "url": "https://v", "model": "p"}
    prices = {"price-in": 1.0, "price-out": 2.0}
    assert given.keys() | more.keys() | prices.keys() | {"longest-answer"} == {
        info.alias for info in UpstreamTable.model_fields.values()
    }
    made = [UpstreamTable.model_validate({**given, key: value}).upstream() for key, value in more.items()]
    made += [
        UpstreamTable.model_validate({**given, **prices, **other}).upstream()
        for other in ({}, {"price-in": 3.0}, {"price-out": 3.0}, {"longest-answer": 9})
    ]
    assert len({repr(upstream) for upstream in made}) == len(more) + 4


BATCH = {
    "--model": ("PATH/m.gguf", True), "--name": ("n", True), "--max-running": ("3", True), "--format": ("w4", False),
    "--max-context": ("64", False), "--threads": ("1", False), "--variant": ("portable", False),
    "--speculate": ("off", False), "--sampling": ("top_k=3", False), "--chat-template": ("chatml", False),
    "--pooling": ("mean", False), "--adapter": ("separation", False),
}  # fmt: skip
"""Options of `surefoot run-batch`, a value, and whether they mean something where a fleet answers."""


def test_run_batch(folder: Path) -> None:
    (folder / "m.gguf").write_bytes(stories_gguf().read_bytes())
    (folder / "in").write_text(f'{{"custom_id": "1", "body": {{"model": "{stories_gguf()}"}}}}\n')
    words = ["run-batch", str(folder / "in"), str(folder / "out")]
    for_fleet = {"--fleet-key": (str(folder / "key"),), "--key": ("k",)}
    assert BATCH.keys() | for_fleet.keys() | {"--fleet"} == names("run-batch")
    given = {option: (value.replace("PATH", str(folder)),) for option, (value, _) in BATCH.items()}
    check(local_batch, words, {**given, **for_fleet}, {*for_fleet})
    fleet = [*words, "--fleet", "http://127.0.0.1:1", "--fleet-key", str(folder / "key")]
    check(fleet_batch, fleet, {**given, "--key": ("k",)}, {option for option, (_, means) in BATCH.items() if not means})


def test_generate_and_chat_read_every_option_that_they_share() -> None:
    source = "".join(Path(module.__file__ or "").read_text() for module in (one_user, generate))
    for name in set(one_user.OneUserOptions.__dataclass_fields__) - {*SETTABLE}:
        assert f"self.{name}" in source or f"shared.{name}" in source, name
