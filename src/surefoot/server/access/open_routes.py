"""Routes that need no key."""

PROBES = frozenset({"/health", "/ready"})  # always answered, even when every place is taken
PAGE = "/"
PAGE_FILES = "/page/"
DOCS = "/docs"
DOCS_FILES = "/docs/"


def needs_no_key(path: str) -> bool:
    """Probes, and the files of the pages, which hold no secret."""
    return path in PROBES or path in (PAGE, DOCS) or path.startswith((PAGE_FILES, DOCS_FILES))
