"""llama.cpp's own server, compiled for this machine."""

from dataclasses import dataclass
from pathlib import Path

from surefoot.bench.peers.install import LLAMA_SOURCE, Say
from surefoot.bench.peers.llama_tools import install_tools
from surefoot.bench.peers.model_forms import gguf_form
from surefoot.bench.peers.serving import Room
from surefoot.bench.server_process import HOST, MODEL_NAME, Launch

# Of a few tried on edits, those with the fewest passes.
LOOKUP = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "16")


@dataclass(frozen=True)
class LlamaServer:
    """A slot for each stream, all in one KV cache, so that a prompt that is shared is kept once.

    speculates: by lookup in the request's own text. Its ngram-mod also remembers the answers of earlier requests, which
    are the same in every round of a benchmark.
    """

    name: str = "llamacpp"
    speculates: bool = False

    def launch(self, model: Path, port: int, room: Room, say: Say) -> Launch:
        file = gguf_form(model)
        options = [
            "--threads", room.threads, "--threads-batch", room.threads, "--parallel", room.num_streams,
            "--ctx-size", room.num_tokens, "--kv-unified", "--cont-batching", "--flash-attn", "auto",
            "--batch-size", 2048, "--ubatch-size", 512, "--cache-reuse", 0, "--threads-http", 4, "--no-webui",
        ]  # fmt: skip
        flags = (*map(str, options), *(LOOKUP if self.speculates else ()))
        command = (str(install_tools(say) / "llama-server"), "--model", str(file), "--alias", MODEL_NAME)
        described = {"build": f"{LLAMA_SOURCE}, GGML_NATIVE=ON", "model": file.name, "flags": " ".join(flags)}
        where = ("--host", HOST, "--port", str(port))
        return Launch((*command, *flags, *where), "/health", described=described)
