"""OpenVINO GenAI's continuous batching behind a small server, in a venv of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.server_process import Launch
from surefoot.bench.peers.install import TORCH, PeerError, install_venv, make_venv, run
from surefoot.bench.peers.model_forms import FORMS, OPENVINO
from surefoot.bench.peers.serving import NO_PATH, PeerLimits

GENAI = "openvino-genai==2026.4.1.0"
EXPORT = (TORCH, "optimum-intel==2.2.0", "openvino-tokenizers==2026.4.1.0", "nncf==3.4.0")
SERVER = ("uvicorn", "httptools", "uvloop")
SCRIPT = Path(__file__).with_name("openvino_script.py")
KV_GB = 2


@dataclass(frozen=True)
class OpenVinoServer:
    """Serves a GGUF file as it is. A folder's weights are converted to 8-bit integers first, by OpenVINO's tools."""

    name: str = "openvino"
    lookup: Mapping[str, int] = field(default_factory=dict)  # options of its speculation; empty: none

    def launch(self, model: Path, port: int, limits: PeerLimits, say: Say) -> Launch:
        home = install_venv(GENAI, lambda home: _install(home, say))
        form = model if model.suffix == ".gguf" else _exported(model, home, say)
        settings = {
            "threads": limits.threads, "num_streams": limits.num_streams, "cache_gb": KV_GB, "prefix_caching": True,
            "max_batched_tokens": 2048, "lookup": dict(self.lookup),
        }  # fmt: skip
        command = (str(home / "venv" / "bin" / "python"), str(SCRIPT), str(form), str(port), json.dumps(settings))
        described = {"build": GENAI, "model": form.name, "text": "token ids: it need not decode", **settings}
        return Launch(command, "/health", NO_PATH, 300.0, described)


def _install(home: Path, say: Say) -> Path:
    say(f"openvino: installing {GENAI} with what exports models (1.6 GB, some minutes)")
    python = make_venv(home, GENAI, *EXPORT, *SERVER)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "torchvision")  # wrong version for torch
    return python


def _exported(model: Path, home: Path, say: Say) -> Path:
    """The model's folder in OpenVINO's format, exported if it does not exist."""
    form = model / FORMS / OPENVINO
    if (form / "openvino_model.bin").exists() and (form / "ready").exists():
        return form
    if not (model / "config.json").exists():
        raise PeerError(f"{model} is neither a GGUF file nor a Hugging Face folder")
    say("openvino: exporting the model with 8-bit weights (some minutes)")
    options = ("--task", "text-generation-with-past", "--weight-format", "int8")
    run(home / "venv" / "bin" / "optimum-cli", "export", "openvino", "--model", model, *options, form)
    (form / "ready").touch()
    return form
