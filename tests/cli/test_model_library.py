"""`surefoot pull`, `list`, `show` and `rm`, with a hub on this machine."""

import json
import os
import subprocess
from pathlib import Path

from tests.cli.process import COMMAND
from tests.stories import stories_gguf
from tests.weights.local_hub import LocalHub, serve_hub


def run(hub: LocalHub, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **settings}
    )


def answer(hub: LocalHub, home: Path, *words: str) -> object:
    done = run(hub, home, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_model_comes_is_shown_and_goes(tmp_path: Path) -> None:
    data = stories_gguf().read_bytes()
    with serve_hub({"m-Q4_K_M.gguf": data, "m-Q8_0.gguf": data + b"\0"}) as hub:
        assert "no models yet" in run(hub, tmp_path, "list").stdout
        pulled = run(hub, tmp_path, "pull", "owner/name:Q4_K_M")
        assert pulled.returncode == 0, pulled.stderr
        assert pulled.stdout.splitlines()[-1] == "serve it: surefoot serve owner/name:Q4_K_M"
        facts = answer(hub, tmp_path, "show", "owner/name:Q4_K_M")
        assert isinstance(facts, dict)
        assert (facts["family"], facts["layers"], facts["context"]) == ("llama", 5, 512)
        assert sum(sizes["memory_bytes"] for sizes in facts["weight_types"]) == facts["weight_bytes"]
        answer(hub, tmp_path, "pull", "owner/name:Q8_0")
        listed = answer(hub, tmp_path, "list")
        assert isinstance(listed, list)
        assert [(row["name"], row["bytes"]) for row in listed] == [
            ("owner/name/m-Q4_K_M.gguf", len(data)), ("owner/name/m-Q8_0.gguf", len(data) + 1),
        ]  # fmt: skip
        assert run(hub, tmp_path, "rm", "owner/name:Q8_0").stdout.startswith("removed owner/name/m-Q8_0.gguf")
        assert [row["name"] for row in answer(hub, tmp_path, "list")] == ["owner/name/m-Q4_K_M.gguf"]  # type: ignore[attr-defined]
        assert run(hub, tmp_path, "rm", "owner/name").returncode == 0
        assert answer(hub, tmp_path, "list") == []
        assert not list(tmp_path.glob("hub/models--*"))


def test_what_is_not_there_is_not_removed(tmp_path: Path) -> None:
    with serve_hub({}) as hub:
        done = run(hub, tmp_path, "rm", "owner/name")
    assert (done.returncode, "surefoot list shows what is" in done.stderr) == (1, True)


def test_recommended_models_and_whether_they_fit(tmp_path: Path) -> None:
    with serve_hub({}) as hub:
        rows = answer(hub, tmp_path, "list", "--recommended")
        assert isinstance(rows, list)
        assert {"qwen3:4b", "smollm2:135m"} <= {row["name"] for row in rows}
        fits = [row["bytes"] for row in rows if row["fits"]]
        assert max(fits, default=0) <= min((row["bytes"] for row in rows if not row["fits"]), default=1 << 60)
        assert {row["name"] for row in rows if row["was_run"]} == {"smollm2:135m", "qwen2.5-coder:1.5b"}
        assert "smollm2:135m" in run(hub, tmp_path, "list", "--recommended").stdout
