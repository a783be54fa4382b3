"""The answer on the first page is what the model that it names gives."""

import pytest

from tests.docs.pages import ROOT, blocks
from tests.server.process import Server
from tests.smollm2 import CACHE

QWEN = CACHE / "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf"


@pytest.mark.skipif(not QWEN.exists(), reason=f"needs {QWEN.name}: ../shared/tools/get-models {CACHE} qwen")
def test_the_first_pages_program_prints_the_answer_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    shown = blocks(ROOT / "README.md")
    number, program = next((i, block) for i, block in enumerate(shown) if block.language == "python")
    server = Server(None, str(QWEN), "--model-name", "coder")
    try:
        exec(program.text.replace("http://127.0.0.1:8000", server.root), {})
    finally:
        server.stop()
    assert capsys.readouterr().out == shown[number + 1].text
