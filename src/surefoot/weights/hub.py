"""Models by name: a path on this machine, or else a Hugging Face id, from the cache or fetched into it.

    owner/name                    the repository's safetensors, configuration and tokenizer
    owner/name@revision           of a branch, tag or commit
    owner/name/file.gguf          one GGUF file of it, with its shards

Only these kinds of files are ever fetched: nothing that would have to be unpickled. HF_HOME, HF_HUB_OFFLINE,
HF_TOKEN and HF_HUB_DISABLE_PROGRESS_BARS mean what they mean to huggingface_hub.
"""

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import huggingface_hub  # exports are imported at their first use, a second that local files need not wait for

FILES = ["*.safetensors", "*.safetensors.index.json", "*config.json", "tokenizer.json", "*.jinja"]
# The same weights once more under other names, or in folders for other programs.
NOT_FILES = ["consolidated*", "*/*"]
HUB_ID = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+?))?(?:/(?P<file>[\w.-]+\.gguf))?")
SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")


class ModelNotFoundError(FileNotFoundError):
    """No such model here or on the hub, and what to do about it."""


@dataclass(frozen=True)
class HubId:
    repository: str
    revision: str | None = None
    file: str | None = None

    @property
    def patterns(self) -> list[str]:
        if self.file is None:
            return FILES
        shard = SHARD.fullmatch(self.file)
        return [f"{shard[1]}-*-of-{shard[2]}.gguf"] if shard else [self.file]


def find_model(name: str) -> Path:
    """The model's file or folder. While it is fetched, huggingface_hub shows a bar where stderr is a terminal."""
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
    found = folder / model.file if model.file else folder
    if not found.exists() or not (model.file or any(folder.glob("*.safetensors"))):
        raise ModelNotFoundError(
            f"{name} has no {model.file or 'safetensors'}; surefoot reads safetensors and GGUF files"
        )
    return found


def _in_folder(folder: Path) -> Path:
    """The folder, or the only GGUF file in it."""
    if (folder / "config.json").exists():
        return folder
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1 or (files and all(SHARD.fullmatch(file.name) for file in files)):
        return files[0]
    choice = f": give one of {', '.join(file.name for file in files)}" if files else ", so not a Hugging Face model"
    raise ModelNotFoundError(f"{folder} is a folder without config.json{choice}")


def parse_id(name: str) -> HubId | None:
    """None for what can only have been meant as a path."""
    match = HUB_ID.fullmatch(name)
    if match is None or name.startswith((".", "~")) or (match["repository"].endswith(".gguf") and not match["file"]):
        return None
    return HubId(match["repository"], match["revision"], match["file"])


def _fetch(name: str, model: HubId) -> Path:
    errors: Any = import_module("huggingface_hub.errors")
    try:
        folder = huggingface_hub.snapshot_download(
            model.repository,
            revision=model.revision,
            allow_patterns=model.patterns,
            ignore_patterns=NOT_FILES,
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
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError) as lacking:
        raise ModelNotFoundError(
            f"{name}: not in the cache, and the hub cannot be reached ({_first_line(lacking)}). Copy its folder "
            "to this machine and give its path, or fetch it where there is a network and bring the cache (HF_HOME)"
        ) from None
    return Path(folder)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
