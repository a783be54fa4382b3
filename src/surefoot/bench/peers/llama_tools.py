"""llama.cpp's own programs, compiled on this machine from the sources in a Python package.

The sources are unpacked once and compiled once for each build. An interrupted build resumes where it stopped.
"""

import fcntl
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.bench.harness.progress import Say
from surefoot.bench.peers.install import LLAMA_SOURCE, TILE_CONFIG_FIX, PeerError, cache_folder, fetch_source, run
from surefoot.machine.atomic_write import atomic_write

MARKER = "/vendor/llama.cpp/"
WARMED_PROMPT = 2048  # tokens at most
BASE_OPTIONS = (
    "CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=OFF", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF",
    "LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF", "LLAMA_USE_PREBUILT_UI=OFF",
)  # fmt: skip


@dataclass(frozen=True)
class LlamaBuild:
    """The instructions that llama.cpp is compiled for."""

    name: str
    options: tuple[str, ...]  # of its CMake project

    @property
    def described(self) -> str:
        return f"{LLAMA_SOURCE}, compiled with {' '.join(self.options)}"


NATIVE_BUILD = LlamaBuild("native", ("GGML_NATIVE=ON",))
AVX2_BUILD = LlamaBuild(
    "avx2", ("GGML_NATIVE=OFF", "GGML_AVX512=OFF", "GGML_AVX2=ON", "GGML_FMA=ON", "GGML_F16C=ON", "GGML_BMI2=ON")
)


def build_for(variant: str | None) -> LlamaBuild:
    """The build to compare with: limited to AVX2 if the benchmark runs our AVX2 variant, or else native."""
    return AVX2_BUILD if variant == "avx2" else NATIVE_BUILD


def install_tool(program: str, say: Say, build: LlamaBuild = NATIVE_BUILD) -> Path:
    """The path of one of llama.cpp's programs, which is compiled first if necessary."""
    home = cache_folder() / f"{LLAMA_SOURCE.replace('==', '-')}-tools"
    folder = home / f"build-{build.name}"
    path = folder / "bin" / program
    home.mkdir(parents=True, exist_ok=True)
    with _alone_in(home):
        if not (path.exists() and _finished(folder).get(program) == [*build.options]):
            _compile(program, build, _source(home, say), folder, say)
    return path


@contextmanager
def _alone_in(home: Path) -> Iterator[None]:
    """Waits until no other process compiles here."""
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _finished(folder: Path) -> dict[str, list[str]]:
    """The build options of each program that is fully compiled."""
    ready = folder / "ready.json"
    return dict(json.loads(ready.read_text())) if ready.exists() else {}


def _compile(program: str, build: LlamaBuild, source: Path, folder: Path, say: Say) -> None:
    say(f"llama.cpp: compiling {program}, {build.name} build (ten minutes or more)")
    fix = source / "tile_config.h"
    fix.write_text(TILE_CONFIG_FIX)
    options = [f"-D{option}" for option in (*BASE_OPTIONS, *build.options, *_launchers())]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run("cmake", "-S", source, "-B", folder, *generator, *options, f"-DCMAKE_CXX_FLAGS=-include {fix}")
    run("cmake", "--build", folder, "-j", str(len(os.sched_getaffinity(0))), "--target", program)
    with atomic_write(folder / "ready.json") as temporary:
        temporary.write_text(json.dumps(_finished(folder) | {program: build.options}))


def _launchers() -> list[str]:
    """CMake options for ccache, if installed. Most files are the same in every build, so it halves the second build."""
    ccache = shutil.which("ccache")
    return [f"CMAKE_{language}_COMPILER_LAUNCHER={ccache}" for language in ("C", "CXX")] if ccache else []


def _source(home: Path, say: Say) -> Path:
    """The folder of llama.cpp's sources. It gets its name once it is complete."""
    source = home / "source"
    if not source.exists():
        say(f"llama.cpp: fetching the sources in {LLAMA_SOURCE}")
        unpacking = home / "unpacking"
        shutil.rmtree(unpacking, ignore_errors=True)
        unpacking.mkdir()
        unpacked = _unpack(fetch_source(unpacking), unpacking)
        (unpacked / "ggml" / "ggml.pc.in").touch()  # configured by its CMakeLists, left out of the archive
        unpacked.rename(source)
        shutil.rmtree(unpacking)
    return source


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        members = [member for member in tar if MARKER in member.name and "/.git/" not in member.name]
        tar.extractall(folder, members=members, filter="data")
    return folder / members[0].name.partition(MARKER)[0] / MARKER.strip("/")


@dataclass(frozen=True)
class LlamaBench:
    """Runs llama-bench on a model file. Each call loads the file, warms up and times one run."""

    program: Path
    model: Path
    threads: int
    build: LlamaBuild = NATIVE_BUILD

    @classmethod
    def install(cls, model: Path, threads: int, build: LlamaBuild, say: Say) -> "LlamaBench":
        return cls(install_tool("llama-bench", say, build), model, threads, build)

    def prefill(self, num_tokens: int) -> float:
        """Seconds for the prompt. A long one is not computed to warm up: it takes minutes, its first pages a second."""
        warmed = ("--no-warmup",) if num_tokens > WARMED_PROMPT else ()
        (seconds,) = self._seconds("-p", str(num_tokens), "-n", "0", *warmed)
        return seconds

    def decode(self, num_tokens: int) -> float:
        """Seconds to decode `num_tokens` tokens."""
        (seconds,) = self._seconds("-p", "0", "-n", str(num_tokens))
        return seconds

    def describe(self) -> dict[str, Any]:
        return {"build": self.build.described, "program": self.program.name}

    def _seconds(self, *options: str) -> list[float]:
        command = [self.program, "-m", self.model, "-t", str(self.threads), "-r", "1", "-o", "json", *options]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerError(f"llama-bench failed: {' '.join(done.stderr.strip().splitlines()[-1:])}")
        return [1e-9 * float(test["avg_ns"]) for test in json.loads(done.stdout)]
