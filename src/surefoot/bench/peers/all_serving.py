"""All serving peers, the fastest to install first."""

from surefoot.bench.peers.llama_server import LlamaServer
from surefoot.bench.peers.openvino_server import OpenVinoServer
from surefoot.bench.peers.serving import ServingPeer
from surefoot.bench.peers.vllm_server import VllmServer

SERVING_PEERS: tuple[ServingPeer, ...] = (LlamaServer(), OpenVinoServer(), VllmServer())
