"""The container image as it runs: as a user without rights, over a read-only root, with a limit on memory."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.packaging.conftest import ROOT, run
from tests.smollm2 import find_file

IMAGE = ROOT / "packaging" / "image"
MOST_IMAGE_BYTES = 400e6
MEMORY_BYTES = 2 << 30
START_S = 300.0
pytestmark = [pytest.mark.nightly, pytest.mark.slow]

LOOK = """
import json, os, pathlib, resource
def writable(folder):
    try:
        (pathlib.Path(folder) / "try").write_text("")
    except OSError as refused:
        return refused.strerror
    return "yes"
folders = ("/", "/usr/local", "/usr/bin", "/models", "/var/lib/surefoot", "/tmp")
places = {folder: writable(folder) for folder in folders}
print(json.dumps([os.getuid(), os.getgid(), resource.getrlimit(resource.RLIMIT_AS)[0], places]))
"""


@pytest.fixture(scope="module")
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one that SUREFOOT_IMAGE names, or a new one of the wheel."""
    if os.geteuid() != 0:
        pytest.skip("only root may make a Debian system and mount it read-only")
    if missing := [name for name in ("buildah", "mmdebstrap", "unshare", "uv") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if given := os.environ.get("SUREFOOT_IMAGE"):
        return Path(given)
    built = tmp_path_factory.mktemp("image") / "surefoot.tar"
    print(run(IMAGE / "build", request.getfixturevalue("wheel"), built))
    return built


@contextmanager
def started(image: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    words = [IMAGE / "run", image, find_file(), *command]
    env = {**os.environ, "MEMORY_BYTES": str(MEMORY_BYTES)}
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=300)


def wait_for_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    log, end = "", time.monotonic() + START_S
    while (found := re.search(r"ready\s+(http://\S+/v1)", log)) is None:
        assert time.monotonic() < end, log
        if select.select([process.stdout], [], [], 1)[0]:
            piece = os.read(process.stdout.fileno(), 1 << 16).decode(errors="replace")
            assert piece, f"the server ended: {log}"
            log += piece
    return found[1]


def unpacked_bytes(image: Path) -> int:
    """Of all files in all layers."""
    with tarfile.open(image) as archive:
        manifest = json.load(archive.extractfile("index.json"))["manifests"][0]["digest"]  # type: ignore[arg-type]
        layers = json.load(archive.extractfile(blob(manifest)))["layers"]  # type: ignore[arg-type]
        total = 0
        for layer in layers:
            with tarfile.open(fileobj=archive.extractfile(blob(layer["digest"]))) as files:
                total += sum(member.size for member in files if member.isfile())
    return total


def blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def test_size(image: Path) -> None:
    packed, unpacked = image.stat().st_size, unpacked_bytes(image)
    print(f"{packed / 1e6:.0f} MB packed, {unpacked / 1e6:.0f} MB unpacked")
    assert max(packed, unpacked) < MOST_IMAGE_BYTES


def test_a_user_without_rights_over_a_read_only_root(image: Path) -> None:
    with started(image, "python3", "-c", LOOK) as process:
        output = process.communicate(timeout=START_S)[0]
    user, group, memory_bytes, writable = json.loads(output.splitlines()[-1])
    assert (user, group, memory_bytes) == (10001, 10001, MEMORY_BYTES)
    assert {folder for folder, answer in writable.items() if answer == "yes"} == {"/var/lib/surefoot", "/tmp"}
    assert "Read-only file system" in writable["/"]


def test_it_serves(image: Path) -> None:
    serve = ("surefoot", "serve", "/models/model.gguf", "--port", "0", "--state-dir", "/var/lib/surefoot/state")
    body = {
        "model": "model",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 16,
        "temperature": 0,
    }
    with started(image, *serve) as process:
        url = wait_for_url(process)
        reply = httpx.post(f"{url}/chat/completions", json=body, timeout=300)
    assert reply.status_code == 200, reply.text
    answer = reply.json()["choices"][0]["message"]["content"]
    print(answer)
    assert "Paris" in answer
