"""Are the ids of tiktoken's vocabularies tiktoken's ids? `python -m experiments.tiktoken_ids` (pip install tiktoken)

`write`: tests/text/tiktoken.json. `compare NAME...`: the vocabularies of other models (gpt-2, qwen2, llama-bpe, gpt4o)
in Kimi's form, on the 10,000 lines of tests/text/corpus.py. `random COUNT`: vocabularies whose ranks are drawn at
random. `characters NAME`: every character of Unicode, at edges of words.
"""

import base64
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import tiktoken
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from surefoot.text import Tokenizer
from surefoot.text.tiktoken import tokenizer_from_ranks
from surefoot.text.vocabulary import TokenKind, byte_level_piece
from tests.text import corpus
from tests.text.references import gguf_metadata, peer_vocabularies, tokenizer_folder

HELD = Path("tests/text/tiktoken.json")
# As Kimi's tokenization_kimi.py has it, apart from the product's own spelling of it.
CASES = (r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]", r"\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]")
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([
    r"[\p{Han}]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?[{CASES[0]}]*[{CASES[1]}]+{ENDING}",
    rf"[^\r\n\p{{L}}\p{{N}}]?[{CASES[0]}]+[{CASES[1]}]*{ENDING}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])  # fmt: skip
SPECIAL = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 17: "<|im_middle|>"}
TEXT = {13: "<|tool_call_begin|>", 22: "<think>", 23: "</think>"}
LINES = [
    "Don't you see? HelloWorld helloWORLD, it'S the 12345 things that we'LL have; IT'S 2,000 or 3.14!",
    "naïve Über l'été ÉCOLE e\u0301te\u0301", "see!\n/path //\n/",
    "你好\uff0c世界。你好世界 Kimi你好Abc 漢字かな交じり文 々〇〡 한국어 텍스트",
    "Привет, МИР! приветМир", "नमस्ते दुनिया", "    indent\n\n\treturn x\r\n  \r\n", "a  b   c    d     ",
    "...!!!\n\n--->>>///", "①②③ ½ Ⅻ x²", "👩‍👩‍👧‍👦 👍🏽 ❤️", "def f(self, name): return self.name_of(name)", "ǅx ǅǅ ʰa",
]  # fmt: skip


def pair(tokens: Sequence[bytes]) -> tuple[Tokenizer, tiktoken.Encoding]:
    """Ours and tiktoken's tokenizer of a vocabulary."""
    first, names = len(tokens), SPECIAL | TEXT
    added = {str(first + i): {"content": text, "special": i in SPECIAL} for i, text in names.items()}
    source = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))
    special = {names.get(i, f"<|reserved_token_{first + i}|>"): first + i for i in range(256)}
    ours = tokenizer_from_ranks(source, {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": added})
    ranks = {token: rank for rank, token in enumerate(tokens)}
    theirs = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    return ours, theirs


def differ(tokens: Sequence[bytes], lines: Iterable[str]) -> tuple[int, int]:
    """How many lines have other ids: a user's text, and a prompt whose control tokens count."""
    ours, theirs = pair(tokens)
    text, users = list(lines), set(TEXT.values())
    return (
        sum(ours.encode(line) != theirs.encode(line, allowed_special=users, disallowed_special=()) for line in text),
        sum(ours.encode(line, parse_special=True) != theirs.encode(line, allowed_special="all") for line in text),
    )


def of_model(name: str) -> list[bytes]:
    """The tokens of a byte-level vocabulary by id, and then the bytes that it lacks."""
    if name in peer_vocabularies():
        metadata = gguf_metadata(peer_vocabularies()[name])
        keys = (metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type"))
        texts = [text for text, kind in zip(*keys, strict=True) if kind == TokenKind.NORMAL]
    else:
        ids = json.loads((tokenizer_folder(name) / "tokenizer.json").read_text())["model"]["vocab"]
        texts = sorted(ids, key=ids.get)
    return list(dict.fromkeys([*map(byte_level_piece, texts), *(bytes([byte]) for byte in range(256))]))


def compare(*names: str) -> None:
    for name in names:
        tokens = of_model(name)
        start = time.process_time()
        pair(tokens)
        seconds = time.process_time() - start
        print(name, f"{len(tokens):,} tokens, {seconds:.1f} s for both, differ:", differ(tokens, corpus.lines()))


def random_ranks(count: str) -> None:
    parts = [*"aAb '\nsé", "[BOS]", "<|im_end|>", "<|im_", "end|>", "<think>", "<|reserved_token_"]
    for seed in range(int(count)):
        chance = random.Random(seed)
        words = {"".join(chance.choices("aAb '", k=chance.randint(2, 6))).encode() for _ in range(1200)}
        tokens = [*(bytes([byte]) for byte in range(256)), *sorted(words)]
        chance.shuffle(tokens)
        lines = ["".join(chance.choices(parts, k=chance.randint(1, 30))) for _ in range(20_000)]
        print(f"seed {seed}: {len(tokens):,} tokens, differ:", differ(tokens, lines))


def characters(name: str) -> None:
    ours, theirs = pair(of_model(name))
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    forms: list[Callable[[str], str]] = [
        lambda c: f"A{c}b {c}{c}1\n{c}'S中{c}",
        lambda c: f" {c}",
        lambda c: f"{c}é{c}",
    ]
    found = [c for c in every if any(ours.encode(form(c)) != theirs.encode_ordinary(form(c)) for form in forms)]
    print(f"{len(every):,} characters, differ: {len(found)}", [hex(ord(c)) for c in found[:20]])


def write() -> None:
    """The vocabulary is made of lines that are not cut into words, so a wrong cut shows. It has words that no merge
    makes, and tokens below their own parts."""
    built = tokenizers.Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    built.train_from_iterator(
        LINES * 2, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    )
    ids = built.get_vocab()
    learnt = [byte_level_piece(text) for text in sorted(ids, key=lambda text: ids[text])]
    tokens = list(dict.fromkeys([*learnt[:256], b" things", *learnt[256:], b" whole-word", b"qzj", b"zj", b"~~~~~~"]))
    theirs = pair(tokens)[1]
    chance = random.Random(5)
    words = [word for line in LINES for word in line.split(" ")]
    words += [" ", "  ", "\n", "\r\n", "\t", " things", "qzj", "zj", "~~~~~~", "'S", "'t"]
    mixed = ["".join(chance.choices([*words, "", " "], k=chance.randint(2, 9))) for _ in range(60)]
    lines = [f"{json.dumps(line)}: {json.dumps(theirs.encode_ordinary(line))}" for line in [*LINES, *mixed]]
    held = [json.dumps(base64.b64encode(token).decode()) for token in tokens]
    rows = [", ".join(held[row : row + 8]) for row in range(0, len(held), 8)]
    HELD.write_text('{"tokens": [\n' + ",\n".join(rows) + '\n], "ids": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    actions: dict[str, Callable[..., None]] = {
        "write": write, "compare": compare, "random": random_ranks, "characters": characters,
    }  # fmt: skip
    actions[sys.argv[1]](*sys.argv[2:])
