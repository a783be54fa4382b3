"""Blocks of Anthropic's messages. Those that no model here reads become text, since a history is sent every turn."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from surefoot.server.schemas.base import Lenient, Name
from surefoot.server.schemas.chat import MediaPart, text_of
from surefoot.server.schemas.dialects import note_kind

Id = Annotated[str, Field(max_length=128)]
Kind = Annotated[str, Field(max_length=64)]


class TextBlock(Lenient):
    type: Literal["text"]
    text: str


class OtherBlock(Lenient):
    """A block of a kind that this server does not know. It is named in the Warning header."""

    type: Kind

    @model_validator(mode="after")
    def _is_noted(self) -> "OtherBlock":
        note_kind("block", self.type)
        return self

    @property
    def text(self) -> str:
        return f"[{self.type}: not read here]"


class SearchResultBlock(Lenient):
    type: Literal["search_result"]
    source: str
    title: str
    content: list[TextBlock] = []  # noqa: RUF012

    @property
    def text(self) -> str:
        return f"{self.title} ({self.source})\n{text_of(self.content)}"


class ToolReferenceBlock(Lenient):
    """A tool that was looked for. All tools are in the prompt here, so that its name is enough."""

    type: Literal["tool_reference"]
    tool_name: Name

    @property
    def text(self) -> str:
        return f"[the tool {self.tool_name} can be called]\n"


def _kind(known: Iterable[str]) -> Discriminator:
    """By the block's type; one that is not known is `other`."""
    names = frozenset(known)

    def find(block: Any) -> Any:
        kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
        if not isinstance(kind, str):
            return None
        if kind.endswith("_tool_result") and "server_result" in names:
            return "server_result"  # web_search_tool_result, mcp_tool_result …
        form = _SAME.get(kind, kind)
        return form if form in names else "other"

    return Discriminator(find, custom_error_type="no_type", custom_error_message="a block is an object with a type")


_SAME = {
    "container_upload": "image", "video": "image", "audio": "image", "file": "image", "redacted_thinking": "thinking",
    "mcp_tool_use": "server_tool_use",
}  # fmt: skip
_Text = Annotated[TextBlock, Tag("text")]
_Media = Annotated[MediaPart, Tag("image")]
_Other = Annotated[OtherBlock, Tag("other")]
SourceBlock = Annotated[_Text | _Media | _Other, _kind(("text", "image"))]


class PlainSource(Lenient):
    type: Literal["text"]
    data: str

    @property
    def text(self) -> str:
        return self.data


class BlocksSource(Lenient):
    type: Literal["content"]
    content: str | list[SourceBlock]

    @property
    def text(self) -> str:
        return text_of(self.content)


class BinarySource(Lenient):
    """A PDF, or a file on another server."""

    type: Literal["base64", "url", "file"]

    @property
    def text(self) -> str:
        return MediaPart(type="file").text


class DocumentBlock(Lenient):
    type: Literal["document"]
    source: Annotated[PlainSource | BlocksSource | BinarySource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.title, self.context, self.source.text)))

    @property
    def complaint(self) -> str | None:
        return MediaPart(type="file").complaint if isinstance(self.source, BinarySource) else None


_Document = Annotated[DocumentBlock, Tag("document")]
_Search = Annotated[SearchResultBlock, Tag("search_result")]
ResultBlock = Annotated[
    _Text | _Media | _Document | _Search | Annotated[ToolReferenceBlock, Tag("tool_reference")] | _Other,
    _kind(("text", "image", "document", "search_result", "tool_reference")),
]


class ToolUseBlock(Lenient):
    type: Literal["tool_use"]
    id: Id
    name: Name
    input: dict[str, Any]


class ToolResultBlock(Lenient):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: str | list[ResultBlock] | None = ""
    is_error: bool | None = None


class ThinkingBlock(Lenient):
    """type: redacted_thinking is encrypted by another server and cannot be read here."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: str = ""


class ServerToolUseBlock(Lenient):
    """A tool that ran on another vendor's server."""

    type: Literal["server_tool_use", "mcp_tool_use"]
    name: Annotated[str, Field(max_length=256)]
    input: dict[str, Any] = {}  # noqa: RUF012

    @property
    def text(self) -> str:
        return f"[{self.name}: {json.dumps(self.input)}]\n"


class ServerEntry(Lenient):
    """What such a tool gave back: a page that was found, a text, the output of a program, an error."""

    title: str | None = None
    url: str | None = None
    text: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    error_code: str | None = None
    tool_name: str | None = None
    content: DocumentBlock | None = None

    @property
    def summary(self) -> str:
        own = (self.title, self.url, self.text, self.stdout, self.stderr, self.error_code, self.tool_name)
        return "\n".join(filter(None, (*own, self.content.text if self.content is not None else None)))


class ServerResultBlock(Lenient):
    type: Kind
    content: str | list[ServerEntry] | ServerEntry | None = None

    @property
    def text(self) -> str:
        content = self.content or ""
        entries = [content] if isinstance(content, ServerEntry) else content
        body = entries if isinstance(entries, str) else "\n".join(entry.summary for entry in entries)
        return f"[{self.type}: {body}]\n"


class CompactionBlock(Lenient):
    """The summary of a conversation that was made shorter."""

    type: Literal["compaction"]
    content: str | None = None

    @property
    def text(self) -> str:
        return self.content or "[compaction: not read here]"


AnyBlock = Annotated[
    _Text
    | _Media
    | _Document
    | _Search
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[ServerToolUseBlock, Tag("server_tool_use")]
    | Annotated[ServerResultBlock, Tag("server_result")]
    | Annotated[CompactionBlock, Tag("compaction")]
    | _Other,
    _kind(
        (
            "text", "image", "document", "search_result", "tool_use", "tool_result", "thinking", "server_tool_use",
            "server_result", "compaction",
        )
    ),
]  # fmt: skip
