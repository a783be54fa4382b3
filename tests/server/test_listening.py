"""The address is tried before the model is loaded, and answers nobody before the model is there."""

import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from surefoot import LLM
from surefoot.server.listening import AddressError, bind
from surefoot.server.serve import serve
from surefoot.server.settings import ServerSettings
from tests.cli.process import COMMAND
from tests.stories import stories_gguf


def start(model: Path, port: int, state: Path) -> subprocess.CompletedProcess[str]:
    words = ["serve", str(model), "--port", str(port), "--state-dir", str(state), "--cache-dir", "none"]
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=300)


def test_a_port_in_use_is_told_before_loading(tmp_path: Path) -> None:
    """The model is not even looked for."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        done = start(tmp_path / "missing.gguf", other.getsockname()[1], tmp_path / "state")
    assert done.returncode == 1
    assert "another program uses it: end that program, or give another --port" in done.stderr
    assert "missing.gguf" not in done.stderr
    assert "Traceback" not in done.stderr


def test_two_that_bind_at_once() -> None:
    """Both may bind; the second to listen is refused with the same sentence."""
    (first,), told, llm = bind("127.0.0.1", 0), list[str](), LLM(stories_gguf(), max_context=64)
    port = first.getsockname()[1]
    sockets = bind("127.0.0.1", port)
    first.listen()
    with closing(first), pytest.raises(AddressError, match="another program uses it"):
        serve(llm, ServerSettings(port=port), None, None, "", told.append, sockets)
    assert not any(line.startswith("ready") for line in told)


def test_nobody_connects_before_it_listens() -> None:
    (ours,) = bind("127.0.0.1", 0)
    with closing(ours), closing(socket.socket()) as client:
        assert client.connect_ex(ours.getsockname()) != 0


def test_all_addresses_of_a_name_have_one_port() -> None:
    sockets = bind("localhost", 0)
    assert len({one.getsockname()[1] for one in sockets}) == 1
    for one in sockets:
        one.close()


@pytest.mark.parametrize(("host", "words"), [("192.0.2.1", "no such address"), ("no.such.name.invalid", "no.such")])
def test_addresses_that_are_not_ours(host: str, words: str) -> None:
    with pytest.raises(AddressError, match=words):
        bind(host, 0)
