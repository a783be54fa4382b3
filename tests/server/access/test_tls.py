"""HTTPS by a server and a gateway, between them, and a certificate that is renewed meanwhile."""

import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from surefoot.server.access.tls import Certificate, TlsError
from tests.fleet.running import key_file, num_ready, start_gateway
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import wait_for

ASKED = {"model": "small", "prompt": "Once", "max_tokens": 4, "temperature": 0}
# As docs/security.md has it, for this machine.
MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=surefoot "
    "-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {cert}"
)


def make_certificate(folder: Path, name: str = "tls") -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(MAKE.format(key=key, cert=cert).split(), check=True, capture_output=True)
    return cert, key


def words_of(files: tuple[Path, Path]) -> tuple[str, ...]:
    return "--tls-cert", str(files[0]), "--tls-key", str(files[1])


def trusting(cert: Path) -> httpx.Client:
    return httpx.Client(verify=ssl.create_default_context(cafile=cert), timeout=60)


def served_certificate(root: str) -> str:
    port = int(root.rpartition(":")[2])
    return ssl.get_server_certificate(("127.0.0.1", port))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    fleet = ("--fleet-key", str(key_file(tmp_path_factory.mktemp("fleet"))))
    started = Server(stories_gguf(), *words_of(files), *fleet)
    yield started
    started.stop()


def test_a_client_that_trusts_the_certificate_is_answered(server: Server, files: tuple[Path, Path]) -> None:
    with trusting(files[0]) as client:
        for _ in range(2):
            reply = client.post(f"{server.url}/completions", json=ASKED)
            assert reply.json()["usage"]["completion_tokens"] == 4
    assert server.root.startswith("https://")


def test_other_clients_are_not(server: Server) -> None:
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.root}/health")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.root.replace('https', 'http')}/health")


def test_a_gateway_speaks_tls_to_its_servers_and_to_clients(
    server: Server, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    own = make_certificate(tmp_path)
    gateway = start_gateway([server], tmp_path, *words_of(own))
    try:
        with trusting(own[0]) as client:
            wait_for(lambda: client.get(f"{gateway.root}/ready").json()["ready"] == 1)
            through = client.post(f"{gateway.url}/completions", json=ASKED).json()
        with trusting(files[0]) as client:
            assert through["choices"] == client.post(f"{server.url}/completions", json=ASKED).json()["choices"]
    finally:
        gateway.stop()


def test_a_gateway_does_not_talk_to_a_server_that_it_does_not_trust(server: Server, tmp_path: Path) -> None:
    gateway = start_gateway([server], tmp_path)
    try:
        assert num_ready(gateway) == 0
    finally:
        assert "takes part" not in gateway.stop()


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    files, renewed = make_certificate(tmp_path), make_certificate(tmp_path, "renewed")
    server = Server(stories_gguf(), *words_of(files))
    try:
        assert served_certificate(server.root) == files[0].read_text()
        before = trusting(files[0])
        before.get(f"{server.root}/health")
        os.replace(renewed[0], files[0])  # and its key is still the old one
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the certificate stays as it was")
        assert served_certificate(server.root) != files[0].read_text()
        os.replace(renewed[1], files[1])
        wait_for(lambda: served_certificate(server.root) == files[0].read_text())
        assert before.get(f"{server.root}/health").status_code == 200  # on its old connection
    finally:
        server.stop()


def test_clients_that_never_begin_a_handshake_make_room(files: tuple[Path, Path]) -> None:
    server = Server(stories_gguf(), *words_of(files), num_files=120)
    try:
        port = int(server.root.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(150)]
        with trusting(files[0]) as client:
            assert client.get(f"{server.root}/health").status_code == 200
        for sock in idle:
            sock.close()
    finally:
        log = server.stop()
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [("missing", "No such file"), ("mismatch", "does not belong"), ("encrypted", "without a password")],
)
def test_a_certificate_that_cannot_be_used_is_refused_with_a_sentence(
    broken: str, complaint: str, files: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = files
    if broken == "missing":
        cert = tmp_path / "none.pem"
    elif broken == "mismatch":
        key = make_certificate(tmp_path)[1]
    else:
        locked = f"openssl pkcs8 -topk8 -in {key} -out {tmp_path / 'locked.key'} -passout pass:secret".split()
        subprocess.run(locked, check=True, capture_output=True)
        key = tmp_path / "locked.key"
    with pytest.raises(TlsError, match=complaint):
        Certificate(cert, key)
