"""Engines whose matrix products are timed beside ours: PyTorch, and llama.cpp's ggml compiled alone."""

import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.bench.harness.progress import Say
from surefoot.bench.peers.install import (
    LLAMA_SOURCE,
    TILE_CONFIG_FIX,
    TORCH,
    PeerError,
    complete,
    fetch_source,
    make_venv,
    requirement_folder,
    run,
)

LLAMA_WHEEL = "xllamacpp==2026.10.11549"
NUMPY = "numpy==2.4.6"

TORCH_ENGINE = Path(__file__).with_name("torch_linear.py")
GGML_ENGINE = Path(__file__).with_name("ggml_linear.py")


@dataclass(frozen=True)
class Peer:
    """An installed engine."""

    name: str
    python: Path  # interpreter of its venv
    engine: Path  # the file that its worker runs
    options: dict[str, Any]  # passed to the engine


def find_torch() -> Peer | None:
    return _find("torch", requirement_folder(TORCH), TORCH_ENGINE)


def find_llama() -> Peer | None:
    """The native build if it exists, or else the prebuilt wheel."""
    return _find("llama.cpp", requirement_folder(LLAMA_SOURCE), GGML_ENGINE) or _find(
        "llama.cpp", requirement_folder(LLAMA_WHEEL), GGML_ENGINE
    )


def install_torch(say: Say) -> Peer:
    def make(folder: Path) -> dict[str, Any]:
        say(f"torch: installing {TORCH} (about a minute)")
        make_venv(folder, TORCH, NUMPY)
        return {}

    return _installed("torch", requirement_folder(TORCH), TORCH_ENGINE, make)


def install_llama(say: Say) -> Peer:
    """ggml compiled for this machine, as llama.cpp recommends; the prebuilt wheel if that fails."""
    try:
        return _installed(
            "llama.cpp", requirement_folder(LLAMA_SOURCE), GGML_ENGINE, lambda folder: _build_ggml(folder, say)
        )
    except (PeerError, OSError) as failure:
        say(f"llama.cpp: no native build ({failure}); taking the prebuilt wheel, which has no AMX")
        return _installed(
            "llama.cpp", requirement_folder(LLAMA_WHEEL), GGML_ENGINE, lambda folder: _get_wheel(folder, say)
        )


def _find(name: str, folder: Path, engine: Path) -> Peer | None:
    ready = folder / "ready.json"
    if not ready.exists():
        return None
    return Peer(name, folder / "venv" / "bin" / "python", engine, json.loads(ready.read_text()))


def _installed(name: str, folder: Path, engine: Path, make: Callable[[Path], dict[str, Any]]) -> Peer:
    complete(folder, make)
    peer = _find(name, folder, engine)
    assert peer
    return peer


def _get_wheel(folder: Path, say: Say) -> dict[str, Any]:
    say(f"llama.cpp: installing {LLAMA_WHEEL}")
    make_venv(folder, LLAMA_WHEEL)
    libraries = sorted(str(path) for path in folder.glob("venv/lib/python*/site-packages/xllamacpp/*.so"))
    return {"libraries": libraries, "build": f"{LLAMA_WHEEL}, prebuilt wheel (no AMX)"}


def _build_ggml(folder: Path, say: Say) -> dict[str, Any]:
    """Compiles only the ggml part of llama.cpp, which takes two minutes instead of twenty."""
    python = make_venv(folder)
    say(f"llama.cpp: fetching the sources in {LLAMA_SOURCE}")
    source = _unpack_ggml(fetch_source(folder, python), folder)
    (source / "ggml.pc.in").touch()  # configured by its CMakeLists, left out of the archive
    fix = folder / "tile_config.h"
    fix.write_text(TILE_CONFIG_FIX)
    say("llama.cpp: compiling ggml for this machine (a few minutes)")
    build = folder / "build"
    run(
        "cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DGGML_NATIVE=ON",
        "-DGGML_BUILD_TESTS=OFF", "-DGGML_BUILD_EXAMPLES=OFF", f"-DCMAKE_CXX_FLAGS=-include {fix}",
    )  # fmt: skip
    run("cmake", "--build", build, "-j", str(len(os.sched_getaffinity(0))))
    libraries = [str(next(build.glob(f"src/**/lib{lib}.so"))) for lib in ("ggml-base", "ggml-cpu", "ggml")]
    return {"libraries": libraries, "build": f"ggml of {LLAMA_SOURCE}, compiled with GGML_NATIVE=ON"}


def _unpack_ggml(archive: Path, folder: Path) -> Path:
    marker = "/vendor/llama.cpp/ggml/"
    with tarfile.open(archive) as tar:
        members = [member for member in tar if marker in member.name]
        tar.extractall(folder, members=members, filter="data")
    archive.unlink()
    return folder / members[0].name.partition(marker)[0] / marker.strip("/")
