"""Fetches a repository's large files into the hub's cache, before huggingface_hub fetches the small ones.

A file is put where huggingface_hub would put it, so that it finds the file there: `blobs/SHA256` of the repository.
"""

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from surefoot.weights import gguf_header, safetensors
from surefoot.weights.hub_id import HubId
from surefoot.weights.resumable import BUFFER_BYTES, PART, RemoteFile, download

# Raises ValueError if models with this metadata are not supported: `general.architecture` of a GGUF file, or all of
# config.json.
CheckArchitecture = Callable[[Mapping[str, Any]], None]
HEAD_BYTES = 4096  # of a GGUF file: its architecture is the first entry
MAX_HEADER_BYTES = 64 << 20
CONFIG = "config.json"


def _hub(module: str) -> Any:
    """A module of huggingface_hub, imported on use: importing takes a second, which local files do not need."""
    return import_module(f"huggingface_hub.{module}")


class DiskFullError(OSError):
    """The disk of the hub's cache has no room for the model."""


def open_repository(model: HubId) -> "Repository | None":
    """None if the hub cannot be asked: snapshot_download meets the same failure, knows what the cache holds, and names
    the cause."""
    hub, utils = _hub("hf_api"), _hub("utils")
    api = hub.HfApi(library_name="surefoot")
    with suppress(Exception):
        commit = api.model_info(model.repository, revision=model.revision).sha
        entries = api.list_repo_tree(model.repository, recursive=True, revision=commit)
        files = [entry for entry in entries if isinstance(entry, hub.RepoFile)]
        wanted = utils.filter_repo_objects(
            files, allow_patterns=model.patterns, ignore_patterns=model.excluded, key=lambda file: file.path
        )
        large = [RemoteFile(file.path, file.lfs.size, file.lfs.sha256) for file in wanted if file.lfs is not None]
        return Repository(model.repository, commit, tuple(large))
    return None


@dataclass(frozen=True)
class Repository:
    """A commit of a repository of the hub."""

    name: str  # owner/name
    commit: str
    large_files: tuple[RemoteFile, ...]  # of the model that was asked for

    @property
    def names(self) -> list[str]:
        return [file.name for file in self.large_files]

    def fetch_large_files(self, check: CheckArchitecture) -> None:
        """Download the files that the cache lacks. An unsupported architecture is refused before."""
        missing = [file for file in self.large_files if not (self._blobs / file.sha256).exists()]
        if not missing:
            return
        check(self._metadata(missing[0].name))
        self._check_room(sum(file.nbytes for file in missing))
        for file in missing:
            self._fetch(file)

    def fetch_headers(self, folder: Path) -> None:
        """Make each file as long as on the hub, with its header only: the rest is a hole, which takes no room."""
        for file in self.large_files:
            target = folder / file.name
            if not target.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{self.name} has a file named {file.name!r}, outside its folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._fetch_header(file.name, target)
            os.truncate(target, file.nbytes)

    def _fetch_header(self, name: str, target: Path) -> None:
        is_whole = gguf_header.is_header_whole if name.endswith(".gguf") else safetensors.is_header_whole
        with target.open("wb") as out, self._stream(name, f"bytes=0-{MAX_HEADER_BYTES - 1}") as stream:
            for data in stream:
                out.write(data)
                out.flush()
                if is_whole(target):
                    return

    @property
    def _blobs(self) -> Path:
        """The folder of the repository's files in the hub's cache."""
        folder: str = _hub("file_download").repo_folder_name(repo_id=self.name, repo_type="model")
        return Path(_hub("constants").HF_HUB_CACHE) / folder / "blobs"

    def _metadata(self, path: str) -> dict[str, Any]:
        """What tells the architecture of the model that the file belongs to."""
        if not path.endswith(".gguf"):
            with self._stream(CONFIG) as stream:
                return dict(json.loads(b"".join(stream)))
        with self._stream(path, f"bytes=0-{HEAD_BYTES - 1}") as stream:
            architecture = read_architecture(next(iter(stream), b""))
        return {} if architecture is None else {"general.architecture": architecture}

    def _check_room(self, nbytes: int) -> None:
        self._blobs.mkdir(parents=True, exist_ok=True)
        received = sum(part.stat().st_size for part in self._blobs.glob(f"*{PART}"))
        free = shutil.disk_usage(self._blobs).free
        if nbytes - received > free:
            raise DiskFullError(
                f"{self.name}: {nbytes / 1e9:.1f} GB are to be fetched, and {free / 1e9:.1f} GB are free in "
                f"{self._blobs}: remove models (surefoot rm), or set HF_HOME to a folder on a larger disk"
            )

    def _fetch(self, file: RemoteFile) -> None:
        with _hub("utils").tqdm(total=file.nbytes, unit="B", unit_scale=True, desc=file.name, disable=None) as bar:
            source = partial(self._stream_from, file.name)
            download(file, source, self._blobs / file.sha256, bar.update)

    def _stream_from(self, path: str, start: int) -> AbstractContextManager[Iterable[bytes]]:
        return self._stream(path, f"bytes={start}-")

    @contextmanager
    def _stream(self, path: str, span: str | None = None) -> Iterator[Iterable[bytes]]:
        """The bytes of a file, or of a span of it (an HTTP range). Raises OSError if the hub does not send them."""
        utils = _hub("utils")
        session = utils.get_session()
        library: Any = import_module(type(session).__module__.partition(".")[0])  # httpx, or its successor
        headers = {**utils.build_hf_headers(library_name="surefoot"), "Accept-Encoding": "identity"}
        headers |= {} if span is None else {"Range": span}
        url = _hub("file_download").hf_hub_url(self.name, path, revision=self.commit)
        try:
            with session.stream("GET", url, headers=headers, follow_redirects=True) as response:
                utils.hf_raise_for_status(response)
                if span is not None and not span.startswith("bytes=0-") and response.status_code != 206:
                    raise OSError("the hub or a proxy before it does not send parts of a file")
                yield response.iter_bytes(BUFFER_BYTES)
        except library.HTTPError as error:
            raise OSError(str(error) or type(error).__name__) from error


def read_architecture(head: bytes) -> str | None:
    """The architecture by the first bytes of a GGUF file; None if it is not the first entry."""
    try:
        magic, _, _, _, length = struct.unpack_from("<4sIQQQ", head)
        kind, size = struct.unpack_from("<IQ", head, 32 + length)
        key, value = head[32 : 32 + length], head[44 + length : 44 + length + size]
    except struct.error:
        return None
    is_architecture = (magic, key, kind, len(value)) == (b"GGUF", b"general.architecture", 8, size)
    return value.decode(errors="replace") if is_architecture else None
