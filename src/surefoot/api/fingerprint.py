"""All that an answer depends on besides its request, as one short text.

Servers with the same fingerprint give the same answers: a stream that one has begun may be resumed at another, and
servers of a fleet must all have it.
"""

import hashlib
import unicodedata
from dataclasses import dataclass
from importlib.metadata import version

from surefoot import __version__
from surefoot.api.llm import LLM
from surefoot.api.prompt_cache import ARITHMETIC
from surefoot.formats import to_format

LIBRARIES = ("jinja2", "llguidance", "tokenizers")  # they decide prompts, masks and token ids
PART_DIGITS = 12
PARTS = ("model files", "settings", "versions")


@dataclass(frozen=True)
class Fingerprint:
    """A digest for each kind of thing that answers depend on, so that a difference can be named."""

    content: str  # of the model's files
    settings: str  # of the options that change answers
    versions: str  # of this package, and of libraries

    def __str__(self) -> str:
        return f"sf-{self.content}-{self.settings}-{self.versions}"


def fingerprint(llm: LLM) -> Fingerprint:
    """Waits until the model's files are hashed. Raises OSError if they cannot be read."""
    template = llm.chat_template
    # Integer formats have the same bits in every variant; float formats promise that within one.
    variant = llm.backend.variant if to_format(llm.float_format).weights is None else ""
    settings = (
        llm.float_format, variant, int(llm.kv_form), llm.context_length, llm.pooling, llm.adapter,
        sorted(llm.default_sampling.settable.items()), sorted(template.templates.items()),
        sorted(template.tokens.items()),
    )  # fmt: skip
    # Python's tables of characters decide what templates strip or put in capitals.
    versions = (ARITHMETIC, __version__, unicodedata.unidata_version, *map(version, LIBRARIES))
    return Fingerprint(_digest(llm.hash_files().content.hex()), _digest(repr(settings)), _digest(repr(versions)))


def differing_parts(first: str, second: str) -> str:
    """Which parts differ between two fingerprints, in words."""
    parts = zip(PARTS, first.split("-")[1:], second.split("-")[1:], strict=False)
    return " and ".join(name for name, one, other in parts if one != other) or "fingerprint"


def _digest(facts: str) -> str:
    return hashlib.blake2b(facts.encode(errors="surrogatepass")).hexdigest()[:PART_DIGITS]
