"""Peers' servers with their own speculation, by lookup in the request's text."""

from surefoot.bench.peers.llama_server import LlamaServer
from surefoot.bench.peers.openvino_server import OpenVinoServer
from surefoot.bench.peers.serving import ServingPeer
from surefoot.bench.peers.vllm_server import VllmServer

# The options with the fewest passes on edits, among those that we tried. We do not use ngram-mod, which also remembers
# the answers of earlier requests: these are the same in every round of a benchmark.
LLAMA = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "16")
OPENVINO = {"num_assistant_tokens": 5, "max_ngram_size": 3}  # as in its documentation
VLLM = (
    "--speculative-config",
    '{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_min": 2, "prompt_lookup_max": 4}',
)


def speculating(name: str) -> str:
    """The name of a peer's server with speculation, which runs in addition to the server without."""
    return f"{name} speculating"


SPECULATING_PEERS: tuple[ServingPeer, ...] = (
    LlamaServer(speculating("llamacpp"), LLAMA),
    OpenVinoServer(speculating("openvino"), OPENVINO),
    VllmServer(speculating("vllm"), VLLM),
)
