"""The peers that serve, the quickest to install first."""

from surefoot.bench.peers.llama_server import LlamaServer
from surefoot.bench.peers.serving import ServingPeer

SERVING_PEERS: tuple[ServingPeer, ...] = (LlamaServer(),)
