"""10,000 lines to tokenise: prose, code, and generated text in many scripts with edge cases of tokenizers."""

import random
import sysconfig
from functools import cache
from pathlib import Path

import pytest

NUM_LINES = 10_000
# How many lines are compared one by one: a quarter by day, all at night.
STEPS = [pytest.param(4, id="every fourth line"), pytest.param(1, id="all lines", marks=pytest.mark.nightly)]
_WIKITEXT = Path(__file__).parents[3] / "shared/data/wikitext2-test.raw"
_CODE = ["argparse.py", "typing.py", "tarfile.py", "inspect.py", "turtle.py", "json/decoder.py", "html/entities.py"]

# First and last code point of what is assigned in each block; the gaps inside are part of the test.
_SCRIPTS = {
    "latin": (0x41, 0x24F), "ipa": (0x250, 0x2AF), "combining": (0x300, 0x36F), "greek": (0x370, 0x3FF),
    "cyrillic": (0x400, 0x52F), "armenian": (0x531, 0x58A), "hebrew": (0x591, 0x5F4), "arabic": (0x600, 0x6FF),
    "devanagari": (0x900, 0x97F), "bengali": (0x980, 0x9FE), "tamil": (0xB82, 0xBFA), "thai": (0xE01, 0xE5B),
    "tibetan": (0xF00, 0xFDA), "georgian": (0x10A0, 0x10FF), "hangul jamo": (0x1100, 0x11FF),
    "ethiopic": (0x1200, 0x137F), "cherokee": (0x13A0, 0x13FD), "khmer": (0x1780, 0x17F9),
    "greek extended": (0x1F00, 0x1FFE), "punctuation": (0x2010, 0x205E), "currency": (0x20A0, 0x20C0),
    "letterlike": (0x2100, 0x218B), "arrows": (0x2190, 0x21FF), "mathematics": (0x2200, 0x22FF),
    "box drawing": (0x2500, 0x257F), "cjk punctuation": (0x3000, 0x303F), "hiragana": (0x3041, 0x309F),
    "katakana": (0x30A0, 0x30FF), "cjk": (0x4E00, 0x9FFF), "hangul": (0xAC00, 0xD7A3),
    "presentation": (0xFB00, 0xFDFF), "fullwidth": (0xFF01, 0xFFEE), "gothic": (0x10330, 0x1034A),
    "deseret": (0x10400, 0x1044F), "cuneiform": (0x12000, 0x12399), "mathematical": (0x1D400, 0x1D7FF),
    "emoji": (0x1F300, 0x1F6FF), "more emoji": (0x1F900, 0x1FAF8), "cjk extension": (0x20000, 0x2A6DF),
}  # fmt: skip
_EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "🙂", "1️⃣", "🧑🏿‍🚀", "☕", "\ufe0f", "\u200d"]
_SPACES = [
    " ", "  ", " " * 7, " " * 40, "\t", "\t\t  ", "\n", "\n\n", "\r\n", "\r", " \n ", "\u00a0", "\u3000",
    "\u2009", "\x0b",
]  # fmt: skip
_ODD = [
    "\x00", "\x01", "\x1b[31m", "\x1c", "\x1d", "\x1e", "\x1f", "\x0c", "\x7f", "\u0085", "\u200b", "\ufeff",
    "\u202e", "\ufffd", "\ufffe", "\U0010ffff", "\ue000",
]  # fmt: skip
_MARKS = [*"'\"`.,;:!?()[]{}<>@#$%^&*-_=+|\\/~▁", "'s", "'LL", "n't", "...", "——", "//", "/*", "*/", "</", "=="]
_SPECIALS = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<bos>", "<0x0A>", "<|endoftext|>", "[INST]"]


@cache
def lines() -> tuple[str, ...]:
    """The same lines in every run; without the wikitext file there are more generated ones."""
    generator = random.Random(3)
    prose = _prose()
    code = _code()
    return (*prose, *code, *(_generated(generator) for _ in range(NUM_LINES - len(prose) - len(code))))


def _prose() -> list[str]:
    if not _WIKITEXT.exists():
        return []
    paragraphs = [line for line in _WIKITEXT.read_text().splitlines(keepends=True) if line.strip()]
    return [line[-200:] for line in paragraphs[:2500]]


def _code() -> list[str]:
    """Lines of code: single lines, and blocks of six with their line ends and indentation."""
    library = Path(sysconfig.get_paths()["stdlib"])
    text = [line for name in _CODE for line in (library / name).read_text().splitlines(keepends=True)]
    single = text[:2000]
    return single + ["".join(text[start : start + 6]) for start in range(2000, 9200, 6)]


def _generated(generator: random.Random) -> str:
    return "".join(_fragment(generator) for _ in range(generator.randint(1, 12)))


def _fragment(generator: random.Random) -> str:
    kind = generator.random()
    if kind < 0.4:
        first, last = generator.choice(list(_SCRIPTS.values()))
        return "".join(chr(generator.randint(first, last)) for _ in range(generator.randint(1, 9)))
    if kind < 0.5:
        return str(generator.randint(0, 10 ** generator.randint(1, 12)))
    if kind < 0.6:
        return generator.choice(
            ["don't", "HELLO", "Über", "naïve", "it'S", "Éa", "e\u0301te", "ЖЖж", "ǅx", "l'été", "x²", "Ⅻ", "½"]
        )
    return generator.choice(generator.choice([_EMOJI, _SPACES, _SPACES, _MARKS, _MARKS, _ODD, _SPECIALS]))
