"""Blocks of Anthropic's messages. Those that no model here reads become text, since a history is sent every turn."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator

from surefoot.server.schemas.base import KNOWN, OTHER, Lenient, Name, by_type
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


_Other = Annotated[OtherBlock, Tag(OTHER)]
_Source = TextBlock | MediaPart
SourceBlock = Annotated[
    Annotated[_Source, Field(discriminator="type"), Tag(KNOWN)] | _Other, by_type(_Source, "a block")
]


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


_Result = TextBlock | MediaPart | DocumentBlock | SearchResultBlock | ToolReferenceBlock
ResultBlock = Annotated[
    Annotated[_Result, Field(discriminator="type"), Tag(KNOWN)] | _Other, by_type(_Result, "a block")
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


def _server_result(block: dict[str, Any]) -> str | None:
    """web_search_tool_result, mcp_tool_result …"""
    return "server_result" if str(block.get("type")).endswith("_tool_result") else None


_Said = (
    TextBlock | MediaPart | DocumentBlock | SearchResultBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock
    | ServerToolUseBlock | CompactionBlock
)  # fmt: skip
AnyBlock = Annotated[
    Annotated[_Said, Field(discriminator="type"), Tag(KNOWN)]
    | Annotated[ServerResultBlock, Tag("server_result")]
    | _Other,
    by_type(_Said, "a block", _server_result),
]
