"""GPTQ and AWQ by llm-compressor on the same float weights and the same windows of calibration text.

    python -m experiments.compress.beside_llm_compressor MODEL.gguf CALIBRATION.txt OUT METHOD

in an environment that has llmcompressor, writes OUT/float (the model as transformers has it) and OUT/METHOD. Then
`surefoot eval compare MODEL.gguf OUT/METHOD ...` says what each lost.
"""

import sys
from pathlib import Path

import datasets
import torch
import transformers
from llmcompressor import oneshot
from llmcompressor.modifiers.awq import AWQModifier
from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier

from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import open_model
from surefoot.models import read_config
from surefoot_compress.make_hf_config import make_hf_config
from surefoot_compress.run import evenly_spaced
from surefoot_compress.save_tokenizer import save_tokenizer
from surefoot_compress.write_compressed_tensors import _halves, _hf_name, _hf_names

torch.Tensor.pin_memory = lambda self, *_: self  # its AWQ asks for an accelerator's memory, which there is none of
GROUP, CONTEXT, NUM_TOKENS = 32, 256, 8192


def float_folder(model: Path, out: Path) -> None:
    checkpoint, tokenizer = open_model(model)
    config, names = read_config(checkpoint), _hf_names(make_hf_config(checkpoint)["model_type"])
    made = transformers.AutoConfig.for_model(**make_hf_config(checkpoint))
    reference = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    state = {}
    for name in checkpoint.tensors:
        values = checkpoint.floats(name)
        if name.split(".")[-2] in ("attn_q", "attn_k") and config.layers[0].rope.pairing == "neighbours":
            values = _halves(values, config, name)
        state[".".join(_hf_name(names, name))] = torch.from_numpy(values.copy())
    missing, strange = reference.load_state_dict(state, strict=False)
    assert not strange, strange
    assert set(missing) <= {"lm_head.weight"}, missing
    reference.tie_weights()
    reference.save_pretrained(out)
    save_tokenizer(tokenizer, out)


def recipe(method: str) -> list:
    scheme = {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP,
                "actorder": "static" if method == "gptq" else None,
            },
        }
    }  # fmt: skip
    if method == "gptq":
        return [GPTQModifier(config_groups=scheme, ignore=["lm_head"], dampening_frac=0.01)]
    if method == "awq":
        return [AWQModifier(config_groups=scheme, ignore=["lm_head"])]
    return [QuantizationModifier(config_groups=scheme, ignore=["lm_head"])]


def main(model: Path, calibration: Path, out: Path, method: str) -> None:
    folder = out / "float"
    if not folder.exists():
        float_folder(model, folder)
    _, tokenizer = open_model(model)
    count = NUM_TOKENS // CONTEXT
    windows = evenly_spaced(cut_windows(tokenizer, calibration.read_text(), CONTEXT), count)
    data = datasets.Dataset.from_dict({"input_ids": windows, "attention_mask": [[1] * CONTEXT for _ in windows]})
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    oneshot(
        model=reference, dataset=data, recipe=recipe(method), max_seq_length=CONTEXT, num_calibration_samples=count,
        shuffle_calibration_samples=False,
    )  # fmt: skip
    reference.save_pretrained(out / method, save_compressed=True)
    save_tokenizer(tokenizer, out / method)


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:4]), sys.argv[4])
