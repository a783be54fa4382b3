"""Tiny encoders, as folders for sentence-transformers and as GGUF files: random weights, few words."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.weights import HuggingFaceCheckpoint
from tests.api import jina
from tests.api.pooled import MODULES, gguf, tokenizers, torch, transformers

LETTERS = "abcdefghijklmnopqrstuvwxyz.,!?"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES: dict[str, Any] = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 3,
    "layer_norm_eps": 1e-12,
}  # fmt: skip
CONTEXT = 300
CLASSIFIER = "ForSequenceClassification"
GGUF_NAMES = {
    "bert": "bert", "nomic_bert": "nomic-bert", "modernbert": "modern-bert", "jina_embeddings_v3": "jina-bert-v3",
    **dict.fromkeys(jina.KINDS, "jina-bert-v2"),
}  # fmt: skip
NAMES = {
    "bert": "Bert", "roberta": "Roberta", "nomic_bert": "NomicBert", "gte": "Gte", "gte_ntk": "Gte",
    "jina_embeddings_v3": "JinaEmbeddingsV3", "modernbert": "ModernBert",
}  # fmt: skip
NTK: dict[str, Any] = {"type": "ntk", "factor": 8.0}
SPECIAL_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
# What the configs have beside SIZES. RoBERTa has a row of positions before the first.
OPTIONS: dict[str, dict[str, Any]] = {
    "bert": {"type_vocab_size": 2},
    "roberta": {"type_vocab_size": 1, "max_position_embeddings": CONTEXT + 1},
    "nomic_bert": {"type_vocab_size": 2},
    "gte": {"type_vocab_size": 1},
    "gte_ntk": {"type_vocab_size": 1},
    "jina_embeddings_v3": {"type_vocab_size": 1, "max_position_embeddings": CONTEXT + 1},
    "modernbert": {**SPECIAL_IDS, "local_attention": 16, "classifier_pooling": "mean"},
}


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
def reference(kind: str, task: str = "Model") -> Any:
    """transformers' model in float32."""
    torch.manual_seed(11)
    size, context = tokenizer().get_vocab_size(), {"max_position_embeddings": CONTEXT}
    if kind in jina.KINDS:
        return jina.make(kind, size, SIZES | context)
    options = context | OPTIONS[kind]
    config_class = getattr(transformers, f"{NAMES[kind]}Config")
    config = config_class(vocab_size=size, num_labels=1, **SIZES | {"pad_token_id": 0} | options)
    model = getattr(transformers, NAMES[kind] + task)(config).to(torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    if kind == "gte_ntk":
        _grow(model.rotary_emb, model.config.rope_parameters["rope_theta"])
    return model


def _grow(rotary: Any, theta: float) -> None:
    """NTK scaling as GTE's own code has it, which transformers has not."""
    factor, dim = NTK["factor"], SIZES["hidden_size"] // SIZES["num_attention_heads"]
    frequencies = (theta * factor) ** (-torch.arange(0, dim, 2).double() / dim) / factor ** (2 / dim)
    rotary.inv_freq = frequencies.float()


def vector(kind: str, tokens: Sequence[int], pooling: str = "mean_tokens") -> Any:
    with torch.no_grad():
        states = reference(kind)(torch.tensor([list(tokens)])).last_hidden_state[0].double().numpy()
    pooled = states.mean(0) if pooling == "mean_tokens" else states[0]
    return pooled / np.linalg.norm(pooled)


def score(kind: str, query: Sequence[int], document: Sequence[int]) -> float:
    """Of a pair, by the classifier. The second text's tokens are of the second type, where a model has two."""
    first, end = (tokenizer().token_to_id(text) for text in ("[CLS]", "[SEP]"))
    ids = torch.tensor([[first, *query, end, *document, end]])
    types = torch.tensor([[0] * (len(query) + 2) + [1] * (len(document) + 1)])
    told = {"token_type_ids": types} if OPTIONS[kind].get("type_vocab_size") == 2 else {}
    with torch.no_grad():
        logits = reference(kind, CLASSIFIER)(ids, **told).logits
    return float(torch.sigmoid(logits.double())[0, 0])


def save_reranker(folder: Path, kind: str) -> Path:
    return _save(folder, kind, CLASSIFIER)


def _save(folder: Path, kind: str, task: str) -> Path:
    reference(kind, task).save_pretrained(folder)
    if kind == "gte_ntk":
        file = folder / "config.json"
        config = json.loads(file.read_text())
        theta = config.pop("rope_parameters")["rope_theta"]
        file.write_text(json.dumps({**config, "rope_theta": theta, "rope_scaling": NTK}))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def save(folder: Path, kind: str = "bert", pooling: str = "mean_tokens") -> Path:
    _save(folder, kind, "Model")
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"idx": i, "path": path, "type": MODULES + name} for i, (name, path) in enumerate(paths.items())]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    return folder


def save_gguf(folder: Path, kind: str = "bert", *, splits: bool = False) -> Path:
    """As llama.cpp converts it: pieces that begin a word are marked, not those that go on with one. splits: gates and
    values of Jina's are two matrices, as an older converter has them."""
    checkpoint, path = HuggingFaceCheckpoint.open(save(folder / "source", kind)), folder / "model.gguf"
    writer = gguf.GGUFWriter(path, GGUF_NAMES[kind])
    if kind == "nomic_bert":
        writer.add_rope_freq_base(1000.0)
    if kind == "jina_embeddings_v3":
        writer.add_rope_freq_base(20000.0)
    if kind == "modernbert":
        writer.add_rope_freq_base(160000.0)
        writer.add_sliding_window(OPTIONS[kind]["local_attention"])
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_context_length(CONTEXT)
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_layer_norm_eps(1e-5 if kind == "modernbert" else SIZES["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    if (types := checkpoint.tensors.get("token_types.weight")) is not None:
        writer.add_token_type_count(types.shape[0])
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
        values = checkpoint.floats(name)
        if splits and name.endswith("ffn_up.weight"):
            parts = ("ffn_up", "ffn_gate") if kind == "jina_code" else ("ffn_gate", "ffn_up")
            for part, half in zip(parts, np.split(values, 2), strict=True):
                writer.add_tensor(name.replace("ffn_up", part), np.ascontiguousarray(half))
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _phantom(word: str) -> str:
    if word in SPECIAL:
        return word
    return word.removeprefix("##") if word.startswith("##") else f"\u2581{word}"
