"""A tiny Qwen 3 that embeds or reranks, as a Hugging Face folder: random weights, a tokenizer of bytes and words."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.weights import HuggingFaceCheckpoint

gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[reference]'")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install -e '.[reference]'"
)
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[reference]'")

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SIZES: dict[str, Any] = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 6, "head_dim": 32,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip
MODULES = "sentence_transformers.models."


def tokenizer(*, appends_end: bool) -> Any:
    """A token for each byte, for yes and for no. appends_end: <|endoftext|> follows each text."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("y", "e"), ("ye", "s"), ("n", "o")]
    vocabulary = {text: number for number, text in enumerate([*alphabet, *("".join(merge) for merge in merges)])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(list(SPECIAL))
    if appends_end:
        end = (SPECIAL[0], made.token_to_id(SPECIAL[0]))
        made.post_processor = tokenizers.processors.TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    return made


@functools.cache
def reference(kind: str = "Qwen3ForCausalLM") -> Any:
    """transformers' model in float32."""
    torch.manual_seed(5)
    size = tokenizer(appends_end=False).get_vocab_size()
    config = transformers.Qwen3Config(vocab_size=size, pad_token_id=None, num_labels=1, **SIZES)
    model = getattr(transformers, kind)(config).to(torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    return model


def save(folder: Path, kind: str = "Qwen3ForCausalLM", *, appends_end: bool = False) -> Path:
    reference(kind).save_pretrained(folder)
    tokenizer(appends_end=appends_end).save(str(folder / "tokenizer.json"))
    return folder


def save_embedder(folder: Path, mode: str = "lasttoken", *others: str) -> Path:
    """With the files of sentence-transformers. others: modules after the pooling."""
    save(folder, appends_end=True)
    names = ("Transformer", "Pooling", *others)
    paths = [f"{number}_{name}" if number else "" for number, name in enumerate(names)]
    modules = [{"idx": i, "path": paths[i], "type": MODULES + name} for i, name in enumerate(names)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{name}": name == mode for name in ("mean_tokens", "cls_token", "lasttoken", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    return folder


def save_gguf(folder: Path, kind: int, template: str | None = None) -> Path:
    """As llama.cpp converts it. kind: of the pooling; 4 is a reranker, with rows for yes and no and a template."""
    checkpoint, path = HuggingFaceCheckpoint.open(save(folder / "source")), folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_key_length(SIZES["head_dim"])
    writer.add_value_length(SIZES["head_dim"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_pooling_type(gguf.PoolingType(kind))
    add_tokenizer(writer, appends_end=kind == gguf.PoolingType.LAST)
    tensors = {name: checkpoint.floats(name) for name in checkpoint.tensors}
    if template is not None:
        rows = tensors["token_embd.weight"]
        words = [tokenizer(appends_end=False).token_to_id(word) for word in ("yes", "no")]
        tensors["cls.output.weight"] = rows[words]
        writer.add_classifier_output_labels(["yes", "no"])
        writer.add_chat_template([{"name": "rerank", "template": template}])
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: Any, *, appends_end: bool) -> None:
    vocabulary = tokenizer(appends_end=False).get_vocab(with_added_tokens=True)
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.CONTROL if word in SPECIAL else gguf.TokenType.NORMAL for word in words])
    writer.add_token_merges(["y e", "ye s", "n o"])
    writer.add_eos_token_id(vocabulary[SPECIAL[0]])
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(appends_end)


def states(tokens: tuple[int, ...] | list[int], kind: str = "Qwen3ForCausalLM") -> Any:
    """The hidden states after the last norm."""
    with torch.no_grad():
        return reference(kind).model(torch.tensor([list(tokens)])).last_hidden_state[0].numpy()
