"""A tiny real model (stories260K) is streamed, measured, written, and read by other programs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from surefoot.api import LLM
from surefoot.cli.main import app
from surefoot.core import SamplingParams
from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import float_engine, open_model
from surefoot.evaluate.scores import Tally
from surefoot.ops import Backend
from tests.stories import stories_gguf, write_llama2c
from tests.weights.conftest import model_file

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e ./compress")
from surefoot_compress.choose_formats import matrix_shapes  # noqa: E402
from surefoot_compress.format_names import parse_format  # noqa: E402
from surefoot_compress.forward import GROUPS, TorchForward, check_family, layer_weights  # noqa: E402
from surefoot_compress.layer import floats_of  # noqa: E402
from surefoot_compress.loss_cache import LossCache, LossTable  # noqa: E402
from surefoot_compress.methods import METHODS  # noqa: E402
from surefoot_compress.scaling import ScaledLayer, fold_factors, shared_lanes  # noqa: E402
from surefoot_compress.sensitivity import backward, measure_losses, predicted_loss  # noqa: E402
from surefoot_compress.stream import quantised_tensors  # noqa: E402
from tests.compress.replaced import divergence, full_forward  # noqa: E402

__all__ = ["model_file"]

runner = CliRunner()
CONTEXT = 128


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stories that the model generates."""
    llm = LLM(stories_gguf(), threads=1)
    stories = [
        llm.generate(start, SamplingParams(max_tokens=150, temperature=1.0, seed=seed))[0].text
        for seed, start in enumerate(("Once upon a time", "One day", "Tom and Sue", "There was a dog"))
    ]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(stories))
    return path


def windows(text: Path) -> list[list[int]]:
    return cut_windows(open_model(stories_gguf())[1], text.read_text(), CONTEXT)


def run(*words: Any) -> dict[str, Any]:
    done = runner.invoke(app, [*map(str, words), "--json", "--threads", "1"])
    assert done.exit_code == 0, done.output
    output: dict[str, Any] = json.loads(done.stdout)
    return output


def test_the_torch_forward_equals_the_models(text: Path) -> None:
    checkpoint, _ = open_model(stories_gguf())
    window = windows(text)[0]
    native = np.concatenate(
        [chunk.copy() for chunk in float_engine(Backend(threads=1), checkpoint, CONTEXT).logits(window)]
    )
    tally = Tally()
    tally.add_divergences(native, full_forward(checkpoint, torch.tensor([window]))[0].numpy())
    assert np.mean(tally.divergences) < 1e-6


def test_each_method_beats_the_one_before(text: Path) -> None:
    """On the calibration text, where calibration must help."""
    checkpoint, _ = open_model(stories_gguf())
    calibration = windows(text)
    # Groups of 4: the model's rows have 64, 128 and 172 columns.
    formats = {name: parse_format("int3-g4") for name in matrix_shapes(checkpoint) if name.startswith("blk.")}

    def lost(method: str) -> float:
        tensors = quantised_tensors(checkpoint, calibration, formats, METHODS[method])
        return divergence(checkpoint, {name: floats_of(tensor) for name, tensor in tensors}, calibration)

    rtn, awq, gptq = lost("rtn"), lost("awq"), lost("gptq")
    assert awq < rtn
    assert gptq < 0.7 * rtn


def test_the_loss_of_scaled_matrices() -> None:
    """Sensitivities scaled afterwards equal those of a model with the factors in its weights."""
    checkpoint, _ = open_model(stories_gguf())
    config, rng = check_family(checkpoint), np.random.default_rng(2)
    weights = layer_weights(checkpoint, 1)
    now = ScaledLayer({name: tensor.numpy() for name, tensor in weights.items()}, {})
    for group in GROUPS:
        factors = np.exp2(rng.uniform(-1, 1, now.weights[f"{group[0]}.weight"].shape[1])).astype(np.float32)
        now = fold_factors(config, now, group, shared_lanes(config, group[0], factors))
    h, gradient = torch.randn(2, 1, 40, weights["attn_q.weight"].shape[1], generator=torch.Generator().manual_seed(1))
    before, _ = backward(TorchForward(config), 1, weights, [h], [gradient[None]])
    folded = {name: torch.from_numpy(tensor) for name, tensor in now.weights.items()}
    expected, _ = backward(TorchForward(config), 1, folded, [h], [gradient[None]])
    for name, sensitivity in before.items():
        ours, theirs = sensitivity.scaled(now.columns.get(name), now.rows.get(name)), expected[name]
        for mine, other in (
            (ours.gradients, theirs.gradients),
            (ours.inputs, theirs.inputs),
            (ours.moments.second, theirs.moments.second),
        ):
            assert np.allclose(mine, other, rtol=1e-3, atol=1e-5 * np.abs(other).max())


@pytest.mark.parametrize("matrix", ["attn_k", "attn_v", "ffn_down"])
def test_the_loss_of_a_matrix_is_predicted(text: Path, matrix: str) -> None:
    checkpoint, _ = open_model(stories_gguf())
    fmt, calibration = parse_format("int4-g4"), windows(text)
    formats = {name: fmt for name in matrix_shapes(checkpoint) if f".{matrix}." in name}
    table = measure_losses(checkpoint, calibration, lambda name, *_: [fmt] if name in formats else [], METHODS["rtn"])
    tensors = {n: floats_of(tensor) for n, tensor in quantised_tensors(checkpoint, None, formats, METHODS["rtn"])}
    foreseen = predicted_loss(table, dict.fromkeys(formats, fmt.name))
    assert 0.7 < foreseen / divergence(checkpoint, tensors, calibration) < 1.4


def test_an_abandoned_walk_leaves_gradients_enabled(text: Path) -> None:
    checkpoint, _ = open_model(stories_gguf())
    walk = quantised_tensors(checkpoint, windows(text), {}, METHODS["rtn"])
    next(walk)
    assert torch.is_grad_enabled()


def test_measuring_resumes(text: Path, tmp_path: Path) -> None:
    """An interrupted measurement gives the same table, and nothing is measured twice."""
    checkpoint, _ = open_model(stories_gguf())
    formats, asked = [parse_format(name) for name in ("int4-g4", "int8-g4")], list[str]()
    kept = LossCache(tmp_path / "losses", "this")

    def interrupted(part: str, make: Callable[[], LossTable]) -> LossTable:
        if part == "layer 2":
            raise KeyboardInterrupt
        return kept(part, make)

    def candidates(name: str, *_: int) -> list[Any]:
        asked.append(name)
        return formats

    with pytest.raises(KeyboardInterrupt):
        measure_losses(checkpoint, windows(text), candidates, METHODS["gptq"], cache=interrupted)
    asked.clear()
    resumed = measure_losses(checkpoint, windows(text), candidates, METHODS["gptq"], cache=kept)
    assert {name.split(".")[1] for name in asked if name.startswith("blk.")} == {"0", "1", "2"}
    assert resumed == measure_losses(checkpoint, windows(text), candidates, METHODS["gptq"])


def test_another_budget_reuses_measured_losses(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compress(out: str, *more: Any) -> dict[str, Any]:
        words = "--calibration", text, "--context", CONTEXT, *more
        return run("compress", stories_gguf(), tmp_path / out, *words)

    first = compress("a.gguf", "--budget", "9bpw")
    place = tmp_path / f"{Path(stories_gguf()).name}.losses.json"
    kept = place.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(
            "surefoot_compress.choose_formats.measure_losses", lambda *_: pytest.fail("it is measured already")
        )
        assert compress("b.gguf", "--budget", "8.7bpw")["predicted_kl"] > first["predicted_kl"]
    assert place.read_bytes() == kept
    compress("c.gguf", "--budget", "9bpw", "--method", "gptq")
    assert place.read_bytes() != kept


def test_a_budget_is_met_and_its_loss_is_predicted(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.gguf"
    summary = run("compress", stories_gguf(), out, "--budget", "9bpw", "--calibration", text, "--context", CONTEXT)
    assert summary["bits_per_weight"] <= 9
    assert len(set(summary["formats"].values())) > 1
    even = tmp_path / "even.gguf"
    run(
        "compress",
        stories_gguf(),
        even,
        "--format",
        "Q5_0",
        "--embeddings",
        "Q5_0",
        "--calibration",
        text,
        "--context",
        CONTEXT,
    )
    report = tmp_path / "report.html"
    words = "--text", text, "--context", CONTEXT, "--report", report
    comparison = run("eval", "compare", stories_gguf(), out, even, *words)
    mixed, uniform = (model["score"]["fidelity"]["mean_kl"] for model in comparison["models"][1:])
    assert mixed < uniform
    assert 0.5 * mixed < summary["predicted_kl"] < 2 * mixed
    assert "<svg" in report.read_text()
    assert "http" not in report.read_text().replace("http://www.w3.org/2000/svg", "")


@pytest.fixture(scope="module")
def stories15m(model_file: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    weights = model_file("stories15m")
    path = tmp_path_factory.mktemp("model") / "stories15M.gguf"
    write_llama2c(gguf.GGUFWriter(path, "llama"), weights, weights.with_name("stories15M-tokenizer.bin"))
    return path


@pytest.mark.reference
def test_llama_cpp_reads_gguf(stories15m: Path, text: Path, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: pip install xllamacpp")
    out = tmp_path / "small.gguf"
    run("compress", stories15m, out, "--method", "rtn", "--format", "Q4_K", "--embeddings", "IQ4_NL")
    scores = run("eval", "perplexity", out, "--text", text, "--context", CONTEXT, "--llamacpp")["scores"]
    assert scores["llama.cpp"]["perplexity"] == pytest.approx(scores["float32"]["perplexity"], rel=0.01)


@pytest.mark.reference
# With W8A8 transformers rounds activations too, and so is not the float model that it is compared with.
@pytest.mark.parametrize(("method", "fmt", "loss"), [("rtn", "int5-g32-zero", 1e-5), ("smooth-gptq", "int8", 0.02)])
def test_transformers_reads_compressed_tensors(
    stories15m: Path, text: Path, tmp_path: Path, method: str, fmt: str, loss: float
) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[dev]'")
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    out = tmp_path / "small"
    words = ("--calibration", text, "--context", CONTEXT, "--output", "compressed-tensors")
    run("compress", stories15m, out, "--method", method, "--format", fmt, *words)
    checkpoint, tokenizer = open_model(out)
    window = cut_windows(tokenizer, text.read_text(), CONTEXT)[0]
    assert transformers.AutoTokenizer.from_pretrained(out)(text.read_text())["input_ids"][:CONTEXT] == window
    native = np.concatenate(
        [chunk.copy() for chunk in float_engine(Backend(threads=1), checkpoint, CONTEXT).logits(window)]
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    tally = Tally()
    with torch.no_grad():
        tally.add_divergences(model(torch.tensor([window])).logits[0].numpy(), native)
    assert np.mean(tally.divergences) < loss
