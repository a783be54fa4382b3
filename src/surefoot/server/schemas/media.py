"""Images, sound and files, which no model here reads.

An agent sends its history again every turn, so a part that is refused there would end its session. Only what the user
has just sent is refused, in words that say why; anywhere else the part becomes a short text in its place.
"""

from collections.abc import Iterable
from typing import Any, Literal, Protocol

from surefoot.server.schemas.base import Lenient

_MEANING = {
    **dict.fromkeys(("image", "image_url", "input_image"), ("image", "sees no images")),
    **dict.fromkeys(("video", "video_url", "input_video"), ("video", "sees no images")),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), ("sound", "hears no sound")),
    **dict.fromkeys(("file", "input_file", "container_upload"), ("file", "reads no files")),
}


class MediaPart(Lenient):
    """One of them. Its data is not kept."""

    type: Literal[
        "image", "image_url", "input_image", "video", "video_url", "input_video", "audio", "audio_url", "input_audio",
        "file", "input_file", "container_upload",
    ]  # fmt: skip

    @property
    def text(self) -> str:
        noun, fact = _MEANING[self.type]
        return f"[{noun}: this model {fact}]"

    @property
    def refusal(self) -> str:
        return f"this model {_MEANING[self.type][1]}: send text alone"


class HasText(Protocol):
    """A part of a message, as the model gets it."""

    @property
    def text(self) -> str: ...


def text_of(content: str | Iterable[HasText]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def refuse_media(content: Any) -> None:
    """Raises ValueError if what the user has just sent holds such a part."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, MediaPart):
            raise ValueError(part.refusal)
