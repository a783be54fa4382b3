"""The start-up banner: lines about the model, memory, sampling and speed."""

from collections.abc import Iterator

from surefoot import machine
from surefoot.api.llm import LLM
from surefoot.api.opening import OpenModel
from surefoot.server.settings import ServerSettings
from surefoot.text import TEMPLATE_NAMES

TYPICAL_TOKENS = 1024
READING_SPEED = 5.0  # tokens per second that a reader keeps up with
BUSY_SHARE = 0.2  # of the processors, taken by other programs: less is within the error of so short a measurement
MIB = 1 << 20


def describe(llm: LLM, settings: ServerSettings) -> Iterator[str]:
    """Lines about the model, its memory and its sampling."""
    config, weights = llm.config, llm.read_bytes(0)
    yield f"model    {settings.model_name}: {config.family}, {len(config.layers)} layers, context {llm.context_length}"
    if llm.max_context < llm.context_length:
        yield (
            f"context  memory holds {llm.max_context} tokens of one request: longer prompts are refused, answers that "
            "reach it end for lack of memory (grant more, or set --max-context)"
        )
    yield (
        f"memory   {weights / MIB:.0f} MiB weights read a step, {llm.runner.kv.total_bytes / MIB:.0f} MiB for keys and "
        f"values, of {machine.memory().limit_bytes / MIB:.0f} MiB"
    )
    if llm.disk_tier is not None:
        store = llm.disk_tier.store
        used, limit = store.total_bytes / MIB, store.max_bytes / MIB
        form = "encrypted" if store.is_encrypted else "not encrypted (--cache-key-file)"
        yield (
            f"cache    what users ask and get is kept in {store.folder}, {form}: {used:.0f} of {limit:.0f} MiB "
            "(--cache-dir none keeps nothing)"
        )
    else:
        yield f"cache    prompts are not kept on disk: {llm.no_disk_reason}"
    yield f"sampling {llm.sampling_defaults}; what a request says comes first"


def describe_opened(opened: OpenModel) -> Iterator[str]:
    """Warnings that are known before the weights are read."""
    if not opened.has_chat_template:
        yield (
            "chat     no chat template in the model: /v1/chat/completions and the like answer 400 until one is given "
            f"(--chat-template FILE, or one of {', '.join(TEMPLATE_NAMES)})"
        )
    if opened.pooling is not None:
        route = "/v1/rerank" if opened.pooling.ranks else "/v1/embeddings"
        yield f"pooling  {opened.pooling.pooling.value}, for {route}"
    for line in opened.sampling.ignored:
        yield f"sampling {line}"


def describe_speed(llm: LLM, bandwidth: float, others_share: float) -> Iterator[str]:
    """Upper bounds on speed and users by memory bandwidth; not a promise. others_share: of the processors' time, that
    other programs took while the bandwidth was measured."""
    weights, kv = llm.read_bytes(0), llm.read_bytes(TYPICAL_TOKENS) - llm.read_bytes(0)
    alone = bandwidth / (weights + kv)
    num_users = _num_users(bandwidth, weights, kv, llm.capacity.scheduling.max_running)
    yield f"machine  {llm.backend.variant} on {machine.cores().usable} threads, {bandwidth / 1e9:.1f} GB/s"
    if num_users:
        together = num_users * bandwidth / (weights + num_users * kv)
        users = f"{together:.0f} for {num_users} who each see {READING_SPEED:g} or more"
    else:
        users = f"and people read {READING_SPEED:g}: a smaller model would keep up"
    yield f"speed    at most {alone:.{0 if num_users else 1}f} tokens/s for one user, {users}"
    if others_share > BUSY_SHARE:
        yield (
            f"busy     other programs took {others_share:.0%} of the processors while this was measured: alone, the "
            "model would be faster"
        )


def _num_users(bandwidth: float, weights: int, kv: int, most: int) -> int:
    """The number of users that get READING_SPEED each, by memory bandwidth alone."""
    enough = [n for n in range(1, most + 1) if bandwidth / (weights + n * kv) >= READING_SPEED]
    return max(enough, default=0)
