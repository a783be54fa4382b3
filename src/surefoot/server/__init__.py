"""HTTP, JSON, SSE, keys and limits. The only layer that knows the web framework."""

from surefoot.server.key_file import KeyEntry, KeyFileError, add_key, hash_of, make_key
from surefoot.server.keys import KeyStore
from surefoot.server.serve import serve
from surefoot.server.settings import Settings

__all__ = ["KeyEntry", "KeyFileError", "KeyStore", "Settings", "add_key", "hash_of", "make_key", "serve"]
