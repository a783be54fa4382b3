"""Finds a model by name: a path on this machine, or a Hugging Face id, from the hub's cache or fetched into it.

    owner/name                    the repository's safetensors, configuration and tokenizer
    owner/name@revision           of a branch, tag or commit
    owner/name/file.gguf          one GGUF file of it, with its shards
    owner/name:Q4_K_M             the GGUF file whose name contains the tag
    hf.co/owner/name…             the same, or an address of the hub's pages as a browser shows it: /blob/, /resolve/,
                                  /tree/

Only these kinds of files are fetched, never a pickle. HF_HOME, HF_HUB_OFFLINE, HF_TOKEN and
HF_HUB_DISABLE_PROGRESS_BARS work as in huggingface_hub.
"""

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import huggingface_hub  # imports its parts on first use: that takes a second, which local files do not need

from surefoot.weights.wrong_file import PICKLE_ADVICE, PICKLES

FILES = ["*.safetensors", "*.safetensors.index.json", "*config.json", "tokenizer.json", "*.jinja"]
# Copies of the same weights under other names, or in folders for other programs.
NOT_FILES = ["consolidated*", "*/*"]
HUB_ID = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+?))?(?:/(?P<file>[\w.-]+\.gguf)|:(?P<tag>[\w.-]+))?"
)
# Path() turns the two slashes of https:// into one.
HUB = re.compile(r"(?:https?:/+)?(?:www\.)?(?:hf\.co|huggingface\.co)/(?P<rest>[^?#]+).*", re.IGNORECASE)
HUB_PAGE = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)/(?P<kind>blob|resolve|raw|tree)/(?P<revision>[^/]+)(?:/(?P<file>.+))?"
)
MAX_LISTED = 20  # names in an error
SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")


class ModelNotFoundError(FileNotFoundError):
    """There is no such model here or on the hub. The message says what to do."""


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


def find_model(name: str) -> Path:
    """The model's file or folder, fetched if needed. While fetching, huggingface_hub shows a bar if stderr is a
    terminal."""
    path = Path(name).expanduser()
    if path.exists():
        return _in_folder(path) if path.is_dir() else path
    model = parse_id(name)
    if model is None:
        raise ModelNotFoundError(
            f"{name}: no such file or folder: give the path of a .gguf file or of a Hugging Face folder (config.json "
            "and *.safetensors), or a Hugging Face id (owner/name)"
        )
    folder = _fetch(name, model)
    if model.tag is not None:
        return _tagged(name, folder, model.tag)
    target = folder / model.file if model.file else folder
    if not target.exists() or not (model.file or any(folder.glob("*.safetensors"))):
        raise ModelNotFoundError(
            f"{name} has no {model.file or 'safetensors'}; surefoot reads safetensors and GGUF files. If it has GGUF "
            f"files, name one: {model.repository}:Q4_K_M"
        )
    return target


def _tagged(name: str, folder: Path, tag: str) -> Path:
    """The only GGUF file with the tag in its name, or the first of its shards."""
    files = [
        file
        for file in sorted(folder.glob("*.gguf"))
        if tag.lower() in file.name.lower() and not file.name.startswith("mmproj")
    ]
    if len({SHARD.sub(r"\1", file.name) for file in files}) == 1:
        return files[0]
    which = f": give one of {', '.join(file.name for file in files)} by its name" if files else ""
    raise ModelNotFoundError(f"{name} is not one GGUF file{which or ': the repository has none with this name'}")


def _in_folder(folder: Path) -> Path:
    """The folder, or the only GGUF file in it."""
    files = sorted(folder.glob("*.gguf"))
    if (folder / "config.json").exists() and (not files or any(folder.glob("*.safetensors"))):
        return folder
    if len(files) == 1 or (files and all(SHARD.fullmatch(file.name) for file in files)):
        return files[0]
    raise ModelNotFoundError(f"{folder} is a folder without config.json{_advice(folder, files)}")


def _advice(folder: Path, files: list[Path]) -> str:
    if files:
        return f": give one of {', '.join(file.name for file in files[:MAX_LISTED])}"
    if (folder / "adapter_config.json").exists():
        return ": it holds an adapter (LoRA). Merge it into its model with peft (merge_and_unload) and save that"
    if any(folder.glob("*.safetensors")):
        return ": its weights are there, so fetch config.json and tokenizer.json too"
    if any(file.suffix in PICKLES for file in folder.iterdir()):
        return f", and holds a pickle, {PICKLE_ADVICE}"
    return ", so not a Hugging Face model: give the folder that has config.json and *.safetensors, or a GGUF file"


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


def _fetch(name: str, model: HubId) -> Path:
    errors: Any = import_module("huggingface_hub.errors")
    try:
        folder = huggingface_hub.snapshot_download(
            model.repository,
            revision=model.revision,
            allow_patterns=model.patterns,
            ignore_patterns=None if model.file else NOT_FILES,
            library_name="surefoot",
        )
    except errors.GatedRepoError:
        raise ModelNotFoundError(
            f"{name}: accept the terms on the hub's page of {model.repository}, then set HF_TOKEN"
        ) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise ModelNotFoundError(
            f"{name}: the hub has no such model; check its spelling, or HF_TOKEN if it is private"
        ) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError) as error:
        raise ModelNotFoundError(
            f"{name}: not in the cache, and the hub cannot be reached ({_first_line(error)}). Copy its folder "
            "to this machine and give its path, or fetch it where there is a network and bring the cache (HF_HOME)"
        ) from None
    return Path(folder)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
