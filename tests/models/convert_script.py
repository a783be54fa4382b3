"""Turns Hugging Face folders into GGUF files with llama.cpp's own converter: `convert_script.py FOLDER...`.

llama.cpp's source tree and its gguf-py must be in PYTHONPATH. Each folder's file is `model.gguf` in it, in float32. The
files have no vocabulary: the converter knows tokenizers by their hash, and a tiny model's is not among them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gguf
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class


def convert(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    kind = get_model_class(get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT))
    kind.no_mtp = not config.get("mtp_num_hidden_layers")
    # With transformers' defaults in its config, every Nemotron-H would have experts.
    given = {"hparams": config} if config["model_type"] == "nemotron_h" else {}
    model = kind(folder, gguf.LlamaFileType.ALL_F32, folder / "model.gguf", **given)
    writing = getattr(model, "impl", model)  # mistral3 hands its work to another
    writing.set_vocab = lambda: leave_out_vocabulary(writing)
    model.write()


def leave_out_vocabulary(writing: Any) -> None:
    writing.gguf_writer.add_tokenizer_model("none")
    writing.gguf_writer.add_vocab_size(writing.hparams["vocab_size"])


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        convert(path)
