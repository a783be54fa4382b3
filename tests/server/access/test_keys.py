"""Changes to the key file are atomic, and take effect on a running server."""

import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.server.access.key_file import KeyEntry, KeyFileError, add_key, hash_of, make_key, read_keys, revoke_keys
from surefoot.server.access.keys import KeyStore
from tests.cli.process import run
from tests.server.access.sharing import quick_key
from tests.server.doors import DOORS, GATEWAY, SERVER, open_door
from tests.stories import stories_gguf
from tests.waiting import wait_for

NUM_WRITERS, KEYS_EACH = 20, 10


def entry(user: str, **more: object) -> KeyEntry:
    return KeyEntry.model_validate({"hash": hash_of(make_key()), "user": user, **more})


def add_many(file: Path, user: str) -> None:
    for _ in range(KEYS_EACH):
        add_key(file, entry(user))


def test_no_key_is_lost_among_many_writers(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=add_many, args=(file, f"user{number}")) for number in range(NUM_WRITERS)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        if file.exists():
            read_keys(file)  # whole at every moment
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * NUM_WRITERS
    users = [one.user for one in read_keys(file)]
    assert sorted(users) == sorted(f"user{number}" for number in range(NUM_WRITERS) for _ in range(KEYS_EACH))
    assert list(tmp_path.iterdir()) == [file]


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """A write beyond fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_write_that_fails_leaves_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    for user in ("alice", "bob"):
        add_key(file, entry(user))
    before = file.read_text()
    with files_of_at_most(len(before) + 20), pytest.raises(OSError, match="too large"):
        add_key(file, entry("carol"))
    assert file.read_text() == before
    with files_of_at_most(20), pytest.raises(OSError, match="too large"):
        revoke_keys(file, user="alice")
    assert file.read_text() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_writer_that_was_killed_stops_no_other(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    (tmp_path / "keys.toml.partial").write_text("[[key]]\nhal")
    add_key(file, entry("alice"))
    assert [one.user for one in read_keys(file)] == ["alice"]


def test_owner_mode_and_links_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "keys.toml", tmp_path / "link.toml"
    add_key(file, entry("alice"))
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 12345, 12346)
    link.symlink_to(file)
    add_key(link, entry("bob"))
    assert link.is_symlink()
    assert len(read_keys(file)) == 2
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.geteuid() != 0 or (file.stat().st_uid, file.stat().st_gid) == (12345, 12346)


COMMENTED = """# Keys of the lab.

{a}
# bob's laptop; lost on Tuesday
{b}
# Below: machines.

# the night build
{c}"""


def test_comments_stay(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    tables, entries = [], [entry(user) for user in "abc"]
    for one in entries:
        add_key(tmp_path / one.user, one)
        tables.append((tmp_path / one.user).read_text())
    file.write_text(COMMENTED.format(a=tables[0], b=tables[1], c=tables[2]))
    added = entry("d", admin=True)
    add_key(file, added)
    assert file.read_text().startswith(COMMENTED.format(a=tables[0], b=tables[1], c=tables[2]))
    assert revoke_keys(file, name=entries[1].name) == [entries[1]]
    text = file.read_text()
    assert "bob" not in text
    for comment in ("# Keys of the lab.", "# Below: machines.", "# the night build"):
        assert comment in text
    assert read_keys(file) == [entries[0], entries[2], added]


@pytest.mark.parametrize("form", ['key = [{{hash = "{0}", user = "a"}}, {{hash = "{1}", user = "b"}}]\n'])
def test_a_file_in_another_form_is_left_to_its_writer(tmp_path: Path, form: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(form.format(hash_of("a"), hash_of("b")))
    before = file.read_text()
    for change in (lambda: add_key(file, entry("c")), lambda: revoke_keys(file, user="a")):
        with pytest.raises(KeyFileError, match=r"keys\.toml"):
            change()
    assert file.read_text() == before


def test_which_key_is_revoked(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    entries = [entry("a"), entry("b"), entry("b"), entry("c")]
    for one in entries:
        add_key(file, one)
    for name in ("", "0" * 8, entries[0].name[:4]):
        with pytest.raises(KeyFileError, match="no such key"):
            revoke_keys(file, name=name)
    assert revoke_keys(file, user="b") == entries[1:3]
    assert revoke_keys(file, name=entries[3].digest) == [entries[3]]
    with pytest.raises(KeyFileError, match="no key would be left"):
        revoke_keys(file, user="a")
    assert read_keys(file) == entries[:1]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "keys.toml"
    add_key(file, entry("alice"))
    file.chmod(mode)
    actions: list[Callable[[], object]] = [
        lambda: read_keys(file), lambda: KeyStore(file), lambda: add_key(file, entry("b")),
        lambda: revoke_keys(file, user="alice"),
    ]  # fmt: skip
    for action in actions:
        with pytest.raises(KeyFileError, match="chmod 600"):
            action()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path, tmp_path / "none"):
        with pytest.raises(KeyFileError):
            read_keys(path)


def test_an_empty_file_takes_no_keys_away(tmp_path: Path) -> None:
    key, file = make_key(), tmp_path / "keys.toml"
    add_key(file, KeyEntry(hash=hash_of(key), user="a"))
    store = KeyStore(file)
    for text in ("", "# all gone\n"):
        file.write_text(text)
        assert not store.reload()
        assert store.find(key) is not None
    add_key(file, entry("b"))
    assert store.reload()
    assert store.find(key) is None


def keys(*words: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["keys", *words])


def test_the_commands(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    quick_key(file, "bob", weight=2.5, tokens_per_minute=1000)
    assert keys("add", str(file), "--user", "alice", "--admin", "--max-context", "512").exit_code == 0
    table, listed = keys("list", str(file)), keys("list", str(file), "--json")
    bob, alice = json.loads(listed.stdout)
    assert (bob["user"], bob["weight"], bob["tokens_per_minute"], bob["admin"]) == ("bob", 2.5, 1000, False)
    assert (alice["user"], alice["max_context"], alice["admin"]) == ("alice", 512, True)
    for one in read_keys(file):
        assert one.name in table.stdout
        assert one.user in table.stdout
        assert one.digest[:16] not in table.stdout + listed.stdout
    revoked = keys("revoke", str(file), bob["name"])
    assert revoked.stdout == f"revoked {bob['name']} of bob\n"
    for words in ([str(file)], [str(file), "x", "--user", "y"], [str(file), "--user", "bob"]):
        assert keys("revoke", *words).exit_code != 0
    assert [one.user for one in read_keys(file)] == ["alice"]


@pytest.mark.parametrize("kind", DOORS)
def test_figures_of_all_users_are_for_admins(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    admin, user = quick_key(file, "alice", admin=True), quick_key(file, "bob")
    words = ("--keys", str(file))
    door = open_door(kind, stories_gguf(), tmp_path, *words, inner=words if kind == GATEWAY else ())
    server = door.server
    try:
        status = lambda key: httpx.get(f"{server.root}/metrics", headers={"x-api-key": key}).status_code  # noqa: E731
        assert (status(admin), status(user), status("sf-other")) == (200, 403, 401)
        if kind == SERVER:
            refused = run("top", server.root, "--once", "--key", user)
            assert refused.returncode == 1
            assert "admin key" in refused.stderr
            for words, advice in (((), "give a key with --key"), (("--key", "sf-other"), "none of the server's")):
                assert advice in run("top", server.root, "--once", *words).stderr
            assert run("top", server.root, "--once", "--every", "0.2", "--key", admin).returncode == 0
        revoke_keys(file, user="bob")
        wait_for(lambda: status(user) == 401)
        file.write_text("")
        server.wait_for("it had keys and has none now")
        assert status(admin) == 200
    finally:
        door.stop()
