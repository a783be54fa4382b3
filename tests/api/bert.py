"""Tiny BERTs and RoBERTas, as folders for sentence-transformers and as a GGUF file: random weights, few words."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.weights import HuggingFaceCheckpoint
from tests.api.pooled import MODULES, gguf, tokenizers, torch, transformers

LETTERS = "abcdefghijklmnopqrstuvwxyz.,!?"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES: dict[str, Any] = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 3,
    "layer_norm_eps": 1e-12,
}  # fmt: skip
CONTEXT = 300
# transformers' names of config and model, and how many rows of positions come before the first
KINDS = {"bert": ("BertConfig", "BertModel", 0), "roberta": ("RobertaConfig", "RobertaModel", 1)}


def tokenizer() -> Any:
    words = ("cat", "sleeps", "the", "kitten", "is", "##ing", "##s")
    pieces = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *words]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(list(SPECIAL))
    around = [(text, made.token_to_id(text)) for text in ("[CLS]", "[SEP]")]
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    made.enable_truncation(8)  # published files have both
    made.enable_padding(length=8)
    return made


@functools.cache
def reference(kind: str) -> Any:
    """transformers' model in float32."""
    torch.manual_seed(11)
    config_name, model_name, before = KINDS[kind]
    rows = {"max_position_embeddings": CONTEXT + before, "pad_token_id": 0, "type_vocab_size": 2}
    config = getattr(transformers, config_name)(vocab_size=tokenizer().get_vocab_size(), **rows, **SIZES)
    model = getattr(transformers, model_name)(config).to(torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    return model


def vector(kind: str, tokens: Sequence[int], pooling: str = "mean_tokens") -> Any:
    with torch.no_grad():
        states = reference(kind)(torch.tensor([list(tokens)])).last_hidden_state[0].double().numpy()
    pooled = states.mean(0) if pooling == "mean_tokens" else states[0]
    return pooled / np.linalg.norm(pooled)


def save(folder: Path, kind: str = "bert", pooling: str = "mean_tokens") -> Path:
    reference(kind).save_pretrained(folder)
    tokenizer().save(str(folder / "tokenizer.json"))
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"idx": i, "path": path, "type": MODULES + name} for i, (name, path) in enumerate(paths.items())]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    return folder


def save_gguf(folder: Path) -> Path:
    """As llama.cpp converts it: pieces that begin a word are marked, not those that go on with one."""
    checkpoint, path = HuggingFaceCheckpoint.open(save(folder / "source")), folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_context_length(CONTEXT)
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_layer_norm_eps(SIZES["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    vocabulary = tokenizer().get_vocab(with_added_tokens=True)
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([_phantom(word) for word in words])
    kinds = {"[UNK]": gguf.TokenType.UNKNOWN}
    writer.add_token_types(
        [kinds.get(word, gguf.TokenType.CONTROL if word in SPECIAL else gguf.TokenType.NORMAL) for word in words]
    )
    for name in checkpoint.tensors:
        writer.add_tensor(name, checkpoint.floats(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _phantom(word: str) -> str:
    if word in SPECIAL:
        return word
    return word.removeprefix("##") if word.startswith("##") else f"\u2581{word}"
