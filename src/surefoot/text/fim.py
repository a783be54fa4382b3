"""Fill-in-the-middle prompts: they ask for the text between a prefix and a suffix, with the model's own FIM tokens."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from surefoot.text.vocabulary import Vocabulary

# The texts of these tokens in the vocabularies of known models, as in llama.cpp.
PREFIX = (
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<\uff5cfim\u2581begin\uff5c>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
)
SUFFIX = (
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<\uff5cfim\u2581hole\uff5c>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
)
MIDDLE = (
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<\uff5cfim\u2581end\uff5c>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
)
REPOSITORY = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
FILE = ("<|file_sep|>",)
_MARK = "\x01"  # in no merge, so it is always a token of its own
_SNIPPET = "\n\n--- snippet ---\n\n"


@dataclass(frozen=True)
class FimTokens:
    """The token ids of a model's FIM format."""

    prefix: int  # before the text that precedes the gap
    suffix: int  # before the text that follows the gap
    middle: int  # before the text that the model writes
    repository: int | None = None  # before a project's name, where other files of it are given
    file: int | None = None  # before each file of the project

    @property
    def ids(self) -> frozenset[int]:
        return frozenset({self.prefix, self.suffix, self.middle, self.repository, self.file} - {None})  # type: ignore[arg-type]


@dataclass(frozen=True)
class OtherFile:
    """Another file of the project, given as context."""

    name: str  # its path
    text: str  # its content


class NoFimTokens(ValueError):
    """The model has no tokens for fill-in-the-middle."""


class FimTokenizer(Protocol):
    @property
    def fim(self) -> FimTokens | None: ...
    @property
    def before(self) -> tuple[int, ...]: ...
    def encode(self, text: str, *, add_special: bool = ...) -> list[int]: ...
    def token_bytes(self, token: int) -> bytes: ...


def find_fim(vocabulary: Vocabulary, declared: Mapping[str, int | None]) -> FimTokens | None:
    """The model's FIM tokens: those that its file declares, by FimTokens' names, or else those with known texts."""

    def find(name: str, texts: Sequence[str]) -> int | None:
        token = declared.get(name)
        known = (vocabulary.ids[text] for text in texts if text in vocabulary.ids)
        return token if token is not None else next(known, None)

    prefix, suffix, middle = find("prefix", PREFIX), find("suffix", SUFFIX), find("middle", MIDDLE)
    if prefix is None or suffix is None or middle is None:
        return None
    return FimTokens(prefix, suffix, middle, find("repository", REPOSITORY), find("file", FILE))


def fim_prompt(
    tokenizer: FimTokenizer, prefix: str | Sequence[int], suffix: str, others: Sequence[OtherFile] = ()
) -> list[int]:
    """The prompt that asks for the text between prefix and suffix. Special tokens written out in them are plain text.
    Raises NoFimTokens."""
    fim = tokenizer.fim
    if fim is None:
        raise NoFimTokens("this model has no tokens for filling in the middle: send the prefix alone")
    before = _spelled(tokenizer, prefix) if isinstance(prefix, str) else prefix
    after = _spelled(tokenizer, suffix, continues=True)
    context = [token for part in _others(tokenizer, fim, others) for token in part]
    return [*tokenizer.before, *context, fim.prefix, *before, fim.suffix, *after, fim.middle]


def _others(tokenizer: FimTokenizer, fim: FimTokens, others: Sequence[OtherFile]) -> Iterator[Sequence[int]]:
    """The other files, with the model's tokens for projects if it has them, else as plain text."""
    if not others:
        return
    if fim.repository is None or fim.file is None:
        for other in others:
            yield _spelled(tokenizer, _SNIPPET + other.text)
        return
    yield [fim.repository, *_spelled(tokenizer, "project\n", continues=True)]
    for other in others:
        yield [fim.file, *_spelled(tokenizer, f"{other.name}\n{other.text}", continues=True)]
    yield [fim.file, *_spelled(tokenizer, "file\n", continues=True)]


def _spelled(tokenizer: FimTokenizer, text: str, continues: bool = False) -> list[int]:
    """The ids of a text. Some vocabularies have FIM tokens as plain text: such texts are cut in two, so that user text
    cannot inject FIM tokens."""
    first, *rest = _cut(tokenizer, text)
    ids = _continued(tokenizer, first) if continues else tokenizer.encode(first, add_special=False)
    return ids + [token for part in rest for token in _continued(tokenizer, part)]


def _cut(tokenizer: FimTokenizer, text: str) -> list[str]:
    """The text, cut in the middle of every occurrence of a FIM token's text."""
    assert tokenizer.fim is not None
    written = sorted((tokenizer.token_bytes(token).decode() for token in tokenizer.fim.ids), key=len, reverse=True)
    matches = re.finditer("|".join(map(re.escape, written)), text)
    cuts = [0, *((match.start() + match.end()) // 2 for match in matches), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)]


def _continued(tokenizer: FimTokenizer, text: str) -> list[int]:
    """The ids of a text, without the space that some encoders put before it."""
    ids = tokenizer.encode(text, add_special=False)
    if b"".join(map(tokenizer.token_bytes, ids)) == text.encode(errors="replace"):
        return ids
    marked = tokenizer.encode(_MARK + text, add_special=False)
    pieces = [tokenizer.token_bytes(token) for token in marked]
    return marked[pieces.index(_MARK.encode()) + 1 :] if _MARK.encode() in pieces else ids
