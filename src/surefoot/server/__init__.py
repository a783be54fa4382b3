"""HTTP, JSON, SSE, keys and limits. With `front` and `fleet`, the only layer that knows the web framework.

Loaded when first asked for: importing the web framework takes longer than reading a small model, which can be done
beside.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.server.access.key_file import KeyEntry, KeyFileError, add_key, hash_of, make_key
    from surefoot.server.access.keys import KeyStore
    from surefoot.server.settings import ServerSettings

_PLACES = {
    "access.key_file": ("KeyEntry", "KeyFileError", "add_key", "hash_of", "make_key"),
    "access.keys": ("KeyStore",),
    "settings": ("ServerSettings",),
}
__all__ = ["KeyEntry", "KeyFileError", "KeyStore", "ServerSettings", "add_key", "hash_of", "make_key"]


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"surefoot.server.{module}"), name)
    raise AttributeError(f"module 'surefoot.server' has no attribute {name!r}")
