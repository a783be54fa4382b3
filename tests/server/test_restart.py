"""A restart behind a listening socket that a service manager holds: nobody is refused, streams end, clients wait."""

import json
import socket
import threading
import time
from collections.abc import Sequence

import httpx

from tests.cli.process import COMMAND
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import wait_for

BODY = {"model": "small", "prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}


class HeldSocket:
    """A listening socket that outlives the servers, as systemd holds one."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    def start(self) -> Server:
        """A server that gets the socket as descriptor 3, by the protocol of LISTEN_FDS."""
        script = f'exec 3<&{self._socket.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        command: Sequence[str] = ("bash", "-c", script, "bash", *COMMAND)
        words = ("--threads", "1", "--drain-s", "60")
        return Server(stories_gguf(), *words, command=command, keeps=(self._socket.fileno(),))

    def close(self) -> None:
        self._socket.close()


def test_a_restart_refuses_nobody_and_cuts_no_stream() -> None:
    held = HeldSocket()
    first = held.start()
    second = None
    try:
        assert first.url == f"http://127.0.0.1:{held.port}/v1"
        streamed: list[str] = []
        stream = threading.Thread(target=_stream, args=(first.url, streamed))
        stream.start()
        wait_for(lambda: len(streamed) > 2)
        first.terminate()
        wait_for(lambda: "draining" in first.read())
        late: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: late.append(_ask(first.url)))
        asking.start()  # connects while the first server drains, or is gone
        stream.join()
        assert streamed[-1] == "[DONE]"
        first.process.wait(timeout=120)
        time.sleep(0.2)  # without any server the connection still waits
        assert asking.is_alive()
        second = held.start()
        asking.join()
        assert late[0].status_code == 200
        assert late[0].json()["usage"]["completion_tokens"] == 4
    finally:
        first.stop()
        if second is not None:
            second.stop()
        held.close()


def _ask(url: str) -> httpx.Response:
    return httpx.post(f"{url}/completions", json={**BODY, "max_tokens": 4}, timeout=300)


def _stream(url: str, events: list[str]) -> None:
    asked = {**BODY, "max_tokens": 400, "stream": True}
    with httpx.stream("POST", f"{url}/completions", json=asked, timeout=300) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: "):
                events.append(line.removeprefix("data: "))
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"
