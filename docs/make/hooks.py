"""Hooks of mkdocs: pages that are written elsewhere or made at build time, and links out of docs.

README is the site's first page; ARCHITECTURE, CONTRIBUTING, CHANGELOG and SECURITY are pages of it; the HTTP
reference is rendered from the server's own schema.
"""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import command
import openapi

ROOT = Path(__file__).parents[2]
# Files of the repository and the pages that they are on the site.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "develop/architecture.md",
    "CONTRIBUTING.md": "develop/contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "develop/reporting.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=_rewritten((ROOT / source).read_text(), source, page)))
    for page, text in (("http", openapi.render(openapi.fetch_schema())), ("command", command.render())):
        files.append(File.generated(config, f"reference/{page}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    return markdown if page.file.generated_by else _rewritten(markdown, f"docs/{uri}", uri)


def _rewritten(text: str, source: str, page: str) -> str:
    """Links of a file at `source` in the repository, as they are on the site's `page`."""

    def replace(found: re.Match[str]) -> str:
        picture, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if inside is None:
            return words if words.strip("`") == path else f"{words} (`{path}`)"
        if inside == "design":
            inside = "design/README.md"
        return f"{picture}[{words}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(replace, text)
