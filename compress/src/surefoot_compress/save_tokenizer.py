"""Writes a tokenizer for a Hugging Face folder."""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, processors

from surefoot.text import Tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, chat_template: str | None = None) -> None:
    """Writes tokenizer.json and tokenizer_config.json, including the ids that begin and end a text."""
    converted = tokenizers.Tokenizer.from_str(tokenizer.library.parsing.to_str())
    texts = {token: converted.id_to_token(token) for token in tokenizer.special}
    converted.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in texts.values() if text])
    converted.decoder = _decoder(converted, tokenizer.drops_first_space)
    converted.post_processor = _surrounded(converted, tokenizer)
    converted.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": bool(tokenizer.ids.before)}
    for name, token in (("bos_token", tokenizer.ids.bos), ("eos_token", tokenizer.ids.eos)):
        if token is not None:
            config[name] = converted.id_to_token(token)
    if chat_template:
        config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False))


def _decoder(converted: tokenizers.Tokenizer, drops_first_space: bool) -> decoders.Decoder:
    if json.loads(converted.to_str())["model"].get("byte_fallback"):
        strip = [decoders.Strip(" ", 1, 0)] if drops_first_space else []
        return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return decoders.ByteLevel()


def _surrounded(converted: tokenizers.Tokenizer, tokenizer: Tokenizer) -> processors.PostProcessor:
    before, after = (
        [(str(converted.id_to_token(token)), token) for token in ids]
        for ids in (tokenizer.ids.before, tokenizer.ids.after)
    )
    single = " ".join([*(text for text, _ in before), "$A", *(text for text, _ in after)])
    return processors.TemplateProcessing(single=single, special_tokens=[*before, *after])
