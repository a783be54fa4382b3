"""Names of models on the Hugging Face hub.

owner/name                    the repository's safetensors, configuration and tokenizer
owner/name@revision           of a branch, tag or commit
owner/name/file.gguf          one GGUF file of it, with its shards
owner/name:Q4_K_M             the GGUF file whose name contains the tag
hf.co/owner/name…             the same, or an address of the hub's pages as a browser shows it: /blob/, /resolve/,
                              /tree/
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote

CONFIGS = ["*.safetensors.index.json", "*config.json", "modules.json"]
FILES = ["*.safetensors", *CONFIGS, "tokenizer.json", "tiktoken.model", "*.jinja"]
# Copies of the same weights under other names or in folders for other programs; what reads images. Numbered folders,
# such as 1_Pooling, have the configs of modules.json; 2_Dense and 3_Dense have matrices too.
COPIES = ["[!0-9]*/*", "[0-9][!_]*/*.safetensors*", "[0-9]_[!D]*/*.safetensors*", "*/*/*"]
NOT_FILES = ["consolidated*", "mmproj*", *COPIES]
HUB_ID = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+?))?(?:/(?P<file>[\w.-]+\.gguf)|:(?P<tag>[\w.-]+))?"
)
# Path() turns the two slashes of https:// into one.
HUB = re.compile(r"(?:https?:/+)?(?:www\.)?(?:hf\.co|huggingface\.co)/(?P<rest>[^?#]+).*", re.IGNORECASE)
HUB_PAGE = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)/(?P<kind>blob|resolve|raw|tree)/(?P<revision>[^/]+)(?:/(?P<file>.+))?"
)
SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")


@dataclass(frozen=True)
class HubId:
    """A parsed Hugging Face id."""

    repository: str  # owner/name
    revision: str | None = None  # branch, tag or commit; None: main
    file: str | None = None  # of the repository
    tag: str | None = None  # a part of a GGUF file's name

    @property
    def patterns(self) -> list[str]:
        """Patterns of the files to fetch."""
        if self.tag is not None:
            return [f"*{tag}*.gguf" for tag in sorted({self.tag, self.tag.lower(), self.tag.upper()})]
        if self.file is None:
            return FILES
        shard = SHARD.fullmatch(self.file)
        return [f"{shard[1]}-*-of-{shard[2]}.gguf"] if shard else [self.file]

    @property
    def excluded(self) -> list[str] | None:
        """Patterns of files that are not fetched."""
        return None if self.file else NOT_FILES


def parse_id(name: str) -> HubId | None:
    """The parsed id; None if the name can only be a path."""
    on_hub = HUB.fullmatch(name)
    if on_hub is not None:
        name = on_hub["rest"].rstrip("/")
        if page := HUB_PAGE.fullmatch(name):
            return _from_page(page)
    match = HUB_ID.fullmatch(name)
    if match is None or name.startswith((".", "~")) or (match["repository"].endswith(".gguf") and not match["file"]):
        return None
    return HubId(match["repository"], match["revision"], match["file"], match["tag"])


def _from_page(page: re.Match[str]) -> HubId | None:
    """The id that the address of a page stands for: a GGUF file's page is that file, any other page the repository."""
    revision, file = unquote(page["revision"]), unquote(page["file"] or "")
    if not file.endswith(".gguf"):
        return HubId(page["repository"], None if revision == "main" else revision)
    if not all(part.strip(".") for part in file.split("/")):
        return None
    return HubId(page["repository"], None if revision == "main" else revision, file)
