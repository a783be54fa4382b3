"""Finds a model by name: a path on this machine, a recommended model's name, or a Hugging Face id.

A model of the hub is taken from the hub's cache or fetched into it. Only safetensors, GGUF, JSON and template files are
fetched, never a pickle. HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN and HF_HUB_DISABLE_PROGRESS_BARS work as in
huggingface_hub.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import huggingface_hub  # imports its parts on first use: that takes a second, which local files do not need

from surefoot.weights.hub_files import CheckArchitecture, DiskFullError, open_repository
from surefoot.weights.hub_id import CONFIGS, SHARD, HubId, parse_id
from surefoot.weights.recommended import recommended_models, resolve_name
from surefoot.weights.resumable import ChecksumError
from surefoot.weights.wrong_file import PICKLE_ADVICE, PICKLES

MAX_LISTED = 20  # names in an error


class ModelNotFoundError(FileNotFoundError):
    """There is no such model here or on the hub. The message says what to do."""


def find_model(name: str, check: CheckArchitecture = lambda _: None) -> Path:
    """The model's file or folder, fetched if needed. check: refuses an architecture before its weights are fetched.
    While fetching, huggingface_hub shows a bar if stderr is a terminal."""
    return _find(name, lambda model: _fetch(name, model, check))


def find_headers(name: str, folder: Path) -> Path:
    """The model's file or folder, as `find_model` gives it. A model of the hub is put into the folder, without weights:
    its files have their sizes and their headers. If the hub cannot be asked, it is taken from the hub's cache."""
    return _find(name, lambda model: _fetch_headers(name, model, folder))


def _find(name: str, fetch: Callable[[HubId], Path]) -> Path:
    """fetch: the folder with a model of the hub."""
    path = Path(name).expanduser()
    if path.exists():
        return _in_folder(path) if path.is_dir() else path
    model = parse_id(resolve_name(name) or name)
    if model is None:
        raise ModelNotFoundError(
            f"{name}: no such file or folder: give the path of a .gguf file or of a Hugging Face folder (config.json "
            "and *.safetensors), a Hugging Face id (owner/name), or a recommended model's name "
            f"({', '.join(model.name for model in recommended_models()[:3])}…; see surefoot list --recommended)"
        )
    folder = fetch(model)
    if model.tag is not None:
        return folder / _tagged(name, [file.name for file in folder.glob("*.gguf")], model.tag)
    target = folder / model.file if model.file else folder
    if not target.exists() or not (model.file or any(folder.glob("*.safetensors"))):
        raise ModelNotFoundError(
            f"{name} has no {model.file or 'safetensors'}; surefoot reads safetensors and GGUF files. If it has GGUF "
            f"files, name one: {model.repository}:Q4_K_M"
        )
    return target


def _tagged(name: str, files: Sequence[str], tag: str) -> str:
    """The only GGUF file with the tag in its name, or the first of its shards."""
    tagged = sorted(file for file in files if tag.lower() in file.lower() and not file.startswith("mmproj"))
    if len({SHARD.sub(r"\1", file) for file in tagged}) == 1:
        return tagged[0]
    which = f": give one of {', '.join(tagged[:MAX_LISTED])} by its name" if tagged else ""
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


def _fetch(name: str, model: HubId, check: CheckArchitecture) -> Path:
    """The folder of the repository's snapshot in the hub's cache."""
    with _explained(name, model):
        if (repository := open_repository(model)) is not None:
            if model.tag is not None:
                _tagged(name, repository.names, model.tag)
            repository.fetch_large_files(check)
        return _snapshot(model, model.patterns)


def _fetch_headers(name: str, model: HubId, folder: Path) -> Path:
    with _explained(name, model):
        if (repository := open_repository(model)) is None:
            return _snapshot(model, model.patterns)
        if model.tag is not None:
            _tagged(name, repository.names, model.tag)
        target = folder / Path(model.repository).name
        repository.fetch_headers(target)
        return target if model.tag or model.file else _snapshot(model, CONFIGS, local_dir=str(target))


def _snapshot(model: HubId, patterns: Sequence[str], **options: Any) -> Path:
    return Path(
        huggingface_hub.snapshot_download(
            model.repository,
            revision=model.revision,
            allow_patterns=list(patterns),
            ignore_patterns=model.excluded,
            library_name="surefoot",
            **options,
        )
    )


@contextmanager
def _explained(name: str, model: HubId) -> Iterator[None]:
    """Turns the hub's errors into such as say what to do."""
    errors: Any = import_module("huggingface_hub.errors")
    try:
        yield
    except errors.GatedRepoError:
        raise ModelNotFoundError(
            f"{name}: accept the terms on the hub's page of {model.repository}, then set HF_TOKEN"
        ) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise ModelNotFoundError(
            f"{name}: the hub has no such model; check its spelling, or HF_TOKEN if it is private"
        ) from None
    except (ModelNotFoundError, ChecksumError, DiskFullError):
        raise
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError) as error:
        raise ModelNotFoundError(
            f"{name}: not in the cache, and the hub cannot be reached ({_first_line(error)}). Copy its folder "
            "to this machine and give its path, or fetch it where there is a network and bring the cache (HF_HOME)"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
