"""The models in the hub's cache: what is there, and its removal."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from surefoot.weights.hub_id import SHARD, HubId

DEFAULT_REVISION = "main"


@dataclass(frozen=True)
class CachedModel:
    """A model that was fetched from the hub: a GGUF file with its shards, or a folder of safetensors."""

    name: str  # as `find_model` takes it
    path: Path
    nbytes: int  # on disk
    last_used_s: float  # time of the last access to its files, since the epoch
    repository: str  # owner/name
    files: tuple[Any, ...]  # as huggingface_hub describes them

    def is_meant_by(self, model: HubId) -> bool:
        """Whether the id names this model."""
        if model.repository.lower() != self.repository.lower():
            return False
        file = self.path.name if self.path.suffix == ".gguf" else None
        if model.tag is not None:
            return file is not None and model.tag.lower() in file.lower()
        return model.file is None or model.file == file


def cached_models() -> list[CachedModel]:
    """All models in the cache, by name."""
    return sorted(_models(_scan()), key=lambda model: model.name.lower())


def remove(models: list[CachedModel]) -> None:
    """Remove the models' files. A repository of which nothing useful is left goes as a whole."""
    cache = _scan()
    removed = {file.file_path for model in models for file in model.files}
    for repository in cache.repos:
        files = [file for revision in repository.revisions for file in revision.files]
        chosen = [file for file in files if file.file_path in removed]
        is_all = all(file in chosen for file in files if file.file_path.suffix in (".gguf", ".safetensors"))
        if chosen and is_all:
            cache.delete_revisions(*(revision.commit_hash for revision in repository.revisions)).execute()
        elif chosen:
            cache.delete_files(*chosen).execute()


def _scan() -> Any:
    """What huggingface_hub finds in the cache."""
    hub: Any = import_module("huggingface_hub")
    folder = Path(import_module("huggingface_hub.constants").HF_HUB_CACHE)
    folder.mkdir(parents=True, exist_ok=True)
    return hub.scan_cache_dir(folder)


def _models(cache: Any) -> Iterator[CachedModel]:
    for repository in cache.repos:
        for revision in repository.revisions if repository.repo_type == "model" else ():
            yield from _models_of(repository.repo_id, revision)


def _models_of(repository: str, revision: Any) -> Iterator[CachedModel]:
    refs = sorted(revision.refs) or [revision.commit_hash]
    name = repository if DEFAULT_REVISION in refs else f"{repository}@{refs[0]}"
    top = [file for file in revision.files if file.file_path.parent == revision.snapshot_path]
    shards: dict[str, list[Any]] = {}
    for file in sorted(top, key=lambda file: file.file_name):
        if file.file_name.endswith(".gguf") and not file.file_name.startswith("mmproj"):
            shards.setdefault(SHARD.sub(r"\1", file.file_name), []).append(file)
    for files in shards.values():
        yield _cached(f"{name}/{files[0].file_name}", files[0].file_path, repository, files)
    names = {file.file_name for file in top}
    if "config.json" in names and any(file.endswith(".safetensors") for file in names):
        yield _cached(
            name, revision.snapshot_path, repository, [file for file in top if file.file_path.suffix != ".gguf"]
        )


def _cached(name: str, path: Path, repository: str, files: list[Any]) -> CachedModel:
    nbytes = sum(file.size_on_disk for file in files)
    return CachedModel(name, path, nbytes, max(file.blob_last_accessed for file in files), repository, tuple(files))
