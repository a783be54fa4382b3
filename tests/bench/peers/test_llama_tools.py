"""llama.cpp's programs are compiled once for each build. An interrupted build is resumed."""

from pathlib import Path

import pytest

from surefoot.bench.peers import llama_tools
from surefoot.bench.peers.install import PeerError, cache_folder
from surefoot.bench.peers.llama_tools import AVX2_BUILD, NATIVE_BUILD, build_for, install_tool


class Compiler:
    """A fake CMake: records its commands, and creates the requested program unless it is set to fail."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.fails = False

    def run(self, *command: str | Path) -> str:
        words = [str(word) for word in command]
        self.commands.append(words)
        if "--build" in words:
            program = Path(words[words.index("--build") + 1]) / "bin" / words[-1]
            program.parent.mkdir(parents=True, exist_ok=True)
            program.touch()
            if self.fails:
                raise PeerError("killed")
        return ""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (cache_folder() / "llama-cpp-python-0.3.36-tools" / "source").mkdir(parents=True)
    fake = Compiler()
    monkeypatch.setattr(llama_tools, "run", fake.run)
    return fake


def install(program: str = "llama-bench", variant: str | None = None) -> Path:
    return install_tool(program, lambda text: None, build_for(variant))


def test_a_finished_build_is_kept(compiler: Compiler) -> None:
    assert install() == install()
    assert len(compiler.commands) == 2


def test_only_the_missing_program_is_compiled(compiler: Compiler) -> None:
    first = install()
    install("llama-server")
    install()
    assert len(compiler.commands) == 4
    first.unlink()
    install()
    assert len(compiler.commands) == 6


def test_an_interrupted_build_is_resumed(compiler: Compiler) -> None:
    compiler.fails = True
    with pytest.raises(PeerError, match="killed"):
        install()
    compiler.fails = False
    assert install().exists()
    assert len(compiler.commands) == 4


def test_avx2_is_compared_with_a_build_for_avx2_alone(compiler: Compiler) -> None:
    assert (build_for("avx2"), build_for("avx512"), build_for(None)) == (AVX2_BUILD, NATIVE_BUILD, NATIVE_BUILD)
    assert install(variant="avx2") != install()
    assert {"-DGGML_NATIVE=OFF", "-DGGML_AVX512=OFF", "-DGGML_AVX2=ON"} <= {*compiler.commands[0]}
    assert "-DGGML_NATIVE=ON" in compiler.commands[2]
