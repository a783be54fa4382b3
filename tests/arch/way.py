"""The files that one chat completion passes through: python -m tests.arch.way

The second of two requests is followed, so that what is done once does not count. The kernels' files are not Python.
"""

import asyncio
import sys
import threading
from pathlib import Path
from types import FrameType

import httpx

import surefoot
from surefoot.api.async_llm import AsyncLLM
from surefoot.api.llm import LLM
from surefoot.server.app import make_app
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings
from tests.stories import stories_gguf

SOURCE = Path(surefoot.__file__).parent
ASK = {"model": "small", "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 4, "seed": 1}


class Followed:
    """Notes the file of every function that is called, in every thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._is_on = False

    def follow(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_on and event == "call":
            self.files.add(frame.f_code.co_filename)

    def start(self) -> None:
        self._is_on = True

    def stop(self) -> None:
        self._is_on = False


async def ask_twice(followed: Followed) -> None:
    llm = LLM(stories_gguf(), max_context=128, chat_template="chatml", speculate="off")
    service = Service(AsyncLLM(llm), ServerSettings(model_name="small"), "followed")
    app = make_app(service, None, None)
    service.llm.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=60) as http:
        for number in range(2):
            if number:
                followed.start()
            reply = await http.post("/v1/chat/completions", json=ASK)
            assert reply.status_code == 200, reply.text
    followed.stop()
    await service.llm.stop()


def files_of_a_chat() -> list[str]:
    followed = Followed()
    followed.follow()
    asyncio.run(ask_twice(followed))
    sys.setprofile(None)
    threading.setprofile(None)
    ours = (Path(name) for name in followed.files)
    return sorted(str(path.relative_to(SOURCE)) for path in ours if path.is_relative_to(SOURCE))


if __name__ == "__main__":
    names = files_of_a_chat()
    print(*names, sep="\n")
    print(f"{len(names)} files", file=sys.stderr)
