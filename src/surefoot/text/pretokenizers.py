"""Pre-tokenizers of byte-level BPE vocabularies: how text is cut into words before merging, by their names in GGUF.

The patterns are those of the models' own tokenizer.json (Kimi's: of its published source). Where llama.cpp only
approximates a pattern (gpt-4o, tekken: letter case beyond ASCII; kimi-k2: letter case, marks and a part of the Han
script; qwen2: no NFC), the model's own is used here.
"""

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers


@dataclass(frozen=True)
class PreTokenizer:
    """How text is cut into words."""

    patterns: tuple[str, ...]  # each cuts the words that the patterns before it left: into its matches and the gaps
    whole_words: bool = False  # a word that is a token is not split, whatever the merges say
    adds_bos: bool = False  # the default, if the file does not say
    composes: bool = False  # text is normalised to NFC first

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.composes else None

    def splitter(self) -> pre_tokenizers.PreTokenizer:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"


def _by_case(without: str = "") -> tuple[str, str]:
    """Words whose capital letters come first: those that end in small letters, and those that need not."""
    upper, lower = (
        rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{without}]",
        rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{without}]",
    )
    return rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+", rf"[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*"


_BY_CASE, _BY_CASE_WITHOUT_HAN = _by_case(), _by_case(r"&&[^\p{Han}]")
_MARKS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDING}|{_LETTERS}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_QWEN2 = rf"{_ENDING}|{_LETTERS}|\p{{N}}|{_MARKS}|{_SPACES}"
_QWEN35 = rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_GPT4O = rf"{_BY_CASE[0]}{_ENDING}?|{_BY_CASE[1]}{_ENDING}?|\p{{N}}{{1,3}}|{_MARKS_AND_SLASHES}|{_SPACES}"
_NOT_HAN = rf"{_BY_CASE_WITHOUT_HAN[0]}{_ENDING}?|{_BY_CASE_WITHOUT_HAN[1]}{_ENDING}?"
_KIMI = rf"\p{{Han}}+|{_NOT_HAN}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_TEKKEN = rf"{_BY_CASE[0]}|{_BY_CASE[1]}|\p{{N}}|{_MARKS_AND_SLASHES}|{_SPACES}"
_SEED_CODER = rf"{_ENDING}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_BLOOM = r" ?[^(\s|.,!?" "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_DIGITS_APART = (r"\p{N}", _GPT2)
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    r"\s?[!-/:-~" "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _CJK,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_SPACES}",
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")

_FAMILIES: list[tuple[str, PreTokenizer]] = [
    ("default", PreTokenizer(_DEFAULT)),
    ("gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum modern-bert exaone4 roberta-bpe "
     "jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code", PreTokenizer((_GPT2,))),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     PreTokenizer((_LLAMA3,), whole_words=True, adds_bos=True)),
    ("dbrx smaug-bpe glm4 chatglm-bpe", PreTokenizer((_LLAMA3,))),
    ("qwen2", PreTokenizer((_QWEN2,), composes=True)),
    ("qwen35", PreTokenizer((_QWEN35,), composes=True)),
    ("stablelm2 hunyuan solar-open megrez deepseek-r1-qwen kormo f2llmv2 grok-2", PreTokenizer((_QWEN2,))),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", PreTokenizer(_DIGITS_APART)),
    ("gpt-4o llama4 kanana2 minimax-m2", PreTokenizer((_GPT4O,))),
    ("kimi-k2", PreTokenizer((_KIMI,), whole_words=True)),
    ("tekken", PreTokenizer((_TEKKEN,), whole_words=True, adds_bos=True)),
    ("deepseek-llm", PreTokenizer(_DEEPSEEK_LLM)),
    ("deepseek-coder", PreTokenizer(_DEEPSEEK_CODER)),
    ("deepseek-v3 hunyuan-dense joyai-llm", PreTokenizer(_DEEPSEEK_V3)),
    ("falcon", PreTokenizer(_FALCON)),
    ("bloom poro-chat gpt3-finnish", PreTokenizer((_BLOOM,))),
    ("viking", PreTokenizer((_BLOOM, r"\p{N}"))),
    ("seed-coder", PreTokenizer((_SEED_CODER,))),
    ("bailingmoe bailingmoe2 llada-moe", PreTokenizer((_BAILING,))),
]  # fmt: skip
PRE_TOKENIZERS = {name: family for names, family in _FAMILIES for name in names.split()}
