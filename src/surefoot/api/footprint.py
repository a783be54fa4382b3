"""The memory that a model's process will take, from its file's header: known before the process is started."""

from dataclasses import dataclass
from pathlib import Path

from surefoot.api.opening import OpenModel, chosen_format, open_model
from surefoot.api.speculation import DRAFT, HEAD, OFF, find_draft
from surefoot.engine import BLOCK_SIZE, MemoryRequest, fit_context, workspace_bytes
from surefoot.formats import AUTO_FORMAT, to_format
from surefoot.models import ModelConfig, read_config
from surefoot.ops import Backend, KvForm
from surefoot.runner import slot_bytes
from surefoot.speculate import MAX_STEP_DRAFTS
from surefoot.weights import Checkpoint, is_eagle, is_medusa, open_eagle, open_medusa
from surefoot.weights.memory import weight_bytes

PYTHON_BYTES = 128 << 20  # of Python, its modules and the template's program
VOCABULARY_BYTES = 720  # of the tokenizer and of arrays of logits, for each token of the vocabulary
PACKING_FACTOR = 1.25  # packed weights by the lower bound that the header gives: 1.01 measured, 1.21 for tiny matrices
KV_SHARE = 0.5  # of the weights' memory, for keys and values, unless a long request needs more
TYPICAL_CONTEXT = 8192  # tokens of a request that fit, where no context is asked for
MAX_CHUNK = 512
ROUNDING = 1.1  # blocks of several groups of layers are not all filled by one request


@dataclass(frozen=True)
class ModelOptions:
    """As for `LLM`."""

    float_format: str = AUTO_FORMAT
    max_context: int | None = None
    max_running: int = 32
    speculate: str = "auto"
    kv_bytes: int | None = None
    pooling: str | None = None
    chat_template: str | None = None
    sampling: tuple[str, ...] = ()  # KEY=VALUE
    adapter: str | None = None


@dataclass(frozen=True)
class Footprint:
    """Upper bounds, in bytes."""

    process: int  # besides the model
    weights: int
    workspace: int  # activations of a step
    kv: int  # keys and values, states
    max_context: int  # tokens of one request that fit

    @property
    def total(self) -> int:
        return self.process + self.weights + self.workspace + self.kv


def plan_footprint(model: OpenModel, options: ModelOptions, variant: str | None = None) -> Footprint:
    """Raises MemoryError if the keys and values do not fit into kv_bytes. Without kv_bytes, a
    process has enough of them for one request, and half of the weights' size."""
    config = read_config(model.checkpoint)
    weights = int(PACKING_FACTOR * _all_weights(model, options))
    backend = Backend(variant, threads=1)
    try:
        sizes = slot_bytes(backend, config, KvForm.KEYS_TWO_LIMBS, BLOCK_SIZE)
    finally:
        backend.close()

    def memory(nbytes: int) -> MemoryRequest:
        return MemoryRequest(sizes, nbytes, options.max_context, options.max_running, MAX_CHUNK, BLOCK_SIZE)

    kv = options.kv_bytes if options.kv_bytes is not None else _kv_bytes(config, memory(0), weights)
    _, context = fit_context(config, memory(kv))
    drafts = 0 if options.speculate == OFF else MAX_STEP_DRAFTS
    workspace = workspace_bytes(config, options.max_running, drafts)
    return Footprint(process_bytes(config.vocab_size), weights, workspace, kv, context)


def process_bytes(vocab_size: int) -> int:
    """What a process takes besides its model. Measured on three models of 49,000 to 262,000 tokens: within 7 MB."""
    return PYTHON_BYTES + vocab_size * VOCABULARY_BYTES


def _all_weights(model: OpenModel, options: ModelOptions) -> int:
    """Of the model and of its draft."""
    fmt = to_format(chosen_format(options.float_format, model.checkpoint.metadata))
    draft = options.speculate.removeprefix(DRAFT)
    own = weight_bytes(model.checkpoint, fmt)
    if draft == options.speculate:
        return own
    if draft.endswith(HEAD):
        return own + Path(draft).stat().st_size
    location = find_draft(draft)
    return own + weight_bytes(_draft_checkpoint(location), fmt)


def _draft_checkpoint(location: Path) -> Checkpoint:
    if is_medusa(location):
        return open_medusa(location).checkpoint
    return open_eagle(location).checkpoint if is_eagle(location) else open_model(location).checkpoint


def _kv_bytes(config: ModelConfig, request: MemoryRequest, weights: int) -> int:
    """Half of the weights' size, but enough for one request, and no more than all requests of full length need."""
    token_bytes = sum(request.sizes.values())
    length = request.length(config)
    one = length if request.max_context is not None else min(length, TYPICAL_CONTEXT)
    states = 2 * request.max_running * config.state_bytes
    least = int(ROUNDING * (one + request.max_chunk) * token_bytes) + 2 * states
    most = request.max_running * (length + request.max_chunk) * token_bytes + 2 * states
    return max(least, min(int(KV_SHARE * weights), most))
