"""llama.cpp's own server, compiled for this machine."""

from dataclasses import dataclass
from pathlib import Path

from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.server_process import HOST, MODEL_NAME, Launch
from surefoot.bench.peers.llama_tools import NATIVE_BUILD, install_tool
from surefoot.bench.peers.model_forms import gguf_form
from surefoot.bench.peers.serving import PeerLimits


@dataclass(frozen=True)
class LlamaServer:
    """Serves with a slot for each stream and a unified KV cache, which stores a shared prompt once."""

    name: str = "llamacpp"
    more: tuple[str, ...] = ()  # options

    def launch(self, model: Path, port: int, limits: PeerLimits, say: Say) -> Launch:
        file = gguf_form(model)
        options = [
            "--threads", limits.threads, "--threads-batch", limits.threads, "--parallel", limits.num_streams,
            "--ctx-size", limits.num_tokens, "--kv-unified", "--cont-batching", "--flash-attn", "auto",
            "--batch-size", 2048, "--ubatch-size", 512, "--cache-reuse", 0, "--threads-http", 4, "--no-webui",
        ]  # fmt: skip
        flags = (*map(str, options), *self.more)
        command = (str(install_tool("llama-server", say)), "--model", str(file), "--alias", MODEL_NAME)
        described = {"build": NATIVE_BUILD.described, "model": file.name, "flags": " ".join(flags)}
        where = ("--host", HOST, "--port", str(port))
        return Launch((*command, *flags, *where), "/health", described=described)
