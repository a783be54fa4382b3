"""The wheel for 64-bit ARM in an emulated Debian (nightly): the same bits as here, also from files written here."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot import __version__
from surefoot.bench.harness.server_process import HOST, MODEL_NAME, Launch, free_port, own_launch, running
from tests.packaging.conftest import ROOT, run
from tests.smollm2 import find_file
from tests.stories import stories_gguf

ARM = ROOT / "packaging" / "arm"
TOOLS = ("aarch64-linux-gnu-g++", "mmdebstrap", "qemu-aarch64-static", "unshare", "uv")
VARIANTS = ("portable", "neon", "i8mm")
MODELS = {"stories260K": stories_gguf, "SmolLM2": find_file}
START_S = 1800.0
STARTS_ITSELF = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
CITY = {"type": "object", "properties": {"city": {"enum": ["Berlin", "Paris"]}}, "required": ["city"]}
CHAT = {
    "model": MODEL_NAME,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}},
    "max_tokens": 16,
    "temperature": 0.8,
    "seed": 7,
    "logprobs": True,
    "top_logprobs": 2,
}
pytestmark = [pytest.mark.nightly, pytest.mark.slow]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The system that SUREFOOT_ARM_ROOT names, or a new one of a new wheel."""
    if os.geteuid() != 0:
        pytest.skip("only root may change into another system")
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if given := os.environ.get("SUREFOOT_ARM_ROOT"):
        return Path(given)
    dist, folder = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("arm") / "root"
    run(ROOT / "packaging" / "build", dist, "aarch64")
    (wheel,) = dist.glob("*.whl")
    assert wheel.name.startswith(f"surefoot-{__version__}-py3-none-manylinux")
    assert wheel.name.endswith("_aarch64.whl")
    run(ARM / "root", wheel, folder)
    return folder


@pytest.fixture
def data(root: Path) -> Iterator[Path]:
    """A folder of the emulated system, empty."""
    folder = root / "data"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def emulate(root: Path, *words: str, processor: str = "max") -> str:
    env = {**os.environ, "PROCESSOR": processor}
    done = subprocess.run(
        [ARM / "run", root, *words], env=env, capture_output=True, text=True, check=False, timeout=START_S
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    ("processor", "features", "variant"),
    [
        ("cortex-a72", [], "portable"),
        ("cortex-a76", ["dotprod"], "neon"),
        ("max", ["dotprod", "i8mm"], "i8mm"),
    ],
)
def test_doctor_finds_the_features(root: Path, processor: str, features: list[str], variant: str) -> None:
    report = json.loads(emulate(root, "-m", "surefoot", "doctor", "--json", "--no-measure", processor=processor))
    assert [name for name, there in report["features"].items() if there] == features
    assert report["variant"] == variant


def test_verify_finds_no_difference(root: Path, data: Path) -> None:
    shutil.copy(stories_gguf(), data / "model.gguf")
    quick = ("--quick", "--requests", "2", "--tokens", "4", "--json")
    *conditions, summary = emulate(root, "-m", "surefoot", "verify", "/data/model.gguf", *quick).splitlines()
    print(summary)
    assert conditions
    assert json.loads(summary)["same"] is True


def here(model: Path, folder: Path, *other: Path) -> dict[str, Any]:
    """The answers of this machine's best variant."""
    words = [sys.executable, Path(__file__).parent / "answers.py", model, folder, "best", *other]
    facts: dict[str, Any] = json.loads(run(*words))
    return facts


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_from_each_others_files(root: Path, data: Path, name: str, variant: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    for file in (model, Path(__file__).parent / "answers.py"):
        shutil.copy(file, data)

    def there(folder: str, *other: str) -> dict[str, Any]:
        words = (f"/data/{file}" for file in ("answers.py", model.name, folder))
        facts: dict[str, Any] = json.loads(emulate(root, *words, variant, *other))
        return facts

    ours = here(model, tmp_path / "ours")
    shutil.copytree(tmp_path / "ours", data / "ours")
    fresh, read = there("fresh"), there("read", "/data/ours")
    back = here(model, tmp_path / "back", data / "fresh")
    assert fresh["answers"] == read["answers"] == back["answers"] == ours["answers"]
    assert fresh["packed"] == ours["packed"]
    for facts in (read, back):
        assert facts["packed_was_read"]
        assert facts["num_cached"] > 0
    assert fresh["variant"] == variant
    assert fresh["num_cached"] == 0


def chat(model: str | Path, *interpreter: str | Path) -> dict[str, Any]:
    """The answer of a server that the interpreter runs."""
    port = free_port()
    words = own_launch(model, port, "--packed-cache", "off").command[1:]
    with running(Launch((*map(str, interpreter), *words), "/ready", start_s=START_S), port):
        reply = httpx.post(f"http://{HOST}:{port}/v1/chat/completions", json=CHAT, timeout=START_S)
    assert reply.status_code == 200, reply.text
    (choice,) = reply.json()["choices"]
    return {key: choice[key] for key in ("message", "logprobs", "finish_reason")}


def test_a_server_answers_with_the_same_bits(root: Path, data: Path) -> None:
    """A chat with a JSON schema: template and grammar are tried in processes of their own."""
    if subprocess.run([ARM / "run", root, "-c", STARTS_ITSELF], capture_output=True, check=False).returncode:
        pytest.skip("the kernel lets no user namespace have a binfmt_misc (Linux 6.7 does)")
    model = find_file()
    shutil.copy(model, data / "model.gguf")
    answer = chat("/data/model.gguf", ARM / "run", root)
    assert json.loads(answer["message"]["content"])["city"] in CITY["properties"]["city"]["enum"]  # type: ignore[index]
    assert answer == chat(model, sys.executable)
