"""Requests that together use every feature of a request."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from surefoot.core import Pooling, Request, SamplingParams

ENGLISH = """The harbour master kept two notebooks. In the first he wrote down every ship that came in, her name, her \
cargo and the state of the tide; in the second, which he showed to nobody, he wrote what the sailors told him about \
the places they had seen. After thirty years the second was the thicker one. "A tide comes back," he used to say, \
"but nobody has ever told me the same story twice." When the new lighthouse was built, he was asked for a speech, and \
he read three pages from each."""

GERMAN = """Am Morgen lag Nebel über den Feldern, und die Straßenbahn kam, wie so oft, zehn Minuten zu spät. Frau \
Größler zählte die Gäste an der Haltestelle: sieben, ein Hund und ein Fahrrad ohne Besitzer. „Es wird schöner", sagte \
der Mann mit dem Hut, obwohl ihn niemand gefragt hatte."""

FRENCH = """L'atelier sentait le bois et la colle. À droite de la fenêtre, l'apprentie rabotait une planche de \
noyer ; à gauche, le maître accordait un violon dont personne ne voulait plus. « Écoute, dit-il, ce n'est pas la corde \
qui chante, c'est l'air qu'elle dérange. »"""

CHINESE = """山脚下有一个小图书馆,只有三间屋子。第一间放地图,第二间放信件,第三间什么也没有。管理员说:\
“第三间是留给还没有写出来的书的。”孩子们常常坐在那里,安静地听雨声。"""

RUSSIAN = """Поезд остановился посреди степи, и никто не знал почему. Проводница разносила чай, пассажиры смотрели \
в окно, а мальчик с верхней полки считал телеграфные столбы. «Сто двенадцать», — сказал он наконец, и поезд тронулся."""  # noqa: RUF001

ARABIC = """في السوق القديم كان بائع الساعات يعرف الوقت في كل مدينة إلا مدينته. سألته الفتاة: كم الساعة الآن؟ \
فابتسم وقال: هنا نعرف الوقت من رائحة الخبز."""

CODE = '''def merge(left: list[int], right: list[int]) -> list[int]:
    """Two sorted lists as one."""
    merged, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return merged + left[i:] + right[j:]


# Tests: merge([1, 4], [2, 3]) == [1, 2, 3, 4]
'''

DATA = """{"orders": [{"id": 1042, "customer": "Nordwind & Söhne", "total": 129.90, "paid": true, "items": [
  {"sku": "LMP-7", "count": 2, "note": null}, {"sku": "KBL-3m", "count": 1, "note": "blue 🔵, not grey"}]}]}
| id | total | paid |
|----|------:|------|
"""

TEXTS = {
    "English": ENGLISH, "code": CODE, "Chinese": CHINESE, "German": GERMAN, "data": DATA, "Russian": RUSSIAN,
    "French": FRENCH, "Arabic": ARABIC,
}  # fmt: skip

QUESTION = "Describe the ship that came in last night, as one JSON object with name, cargo and tons.\n"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "cargo": {"enum": ["timber", "salt", "letters"]},
        "tons": {"type": "integer", "minimum": 1, "maximum": 999},
        "crew": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 2},
    },
    "required": ["name", "cargo", "tons"],
    "additionalProperties": False,
}
DATE = r"(Mon|Tues|Wednes)day, [0-3][0-9] (May|June) 19[0-9]{2}"


MAX_RANDOM_PROMPT = 150  # tokens
SHARED_TOKENS = 70  # common prefix of a third of the prompts, so that there are cache hits
# Short enough to occur in answers, and to span tokens.
STOPS = (("e ", "zzz"), ("and", " t"), (".", ","))
SEGMENT = 128  # tokens that attention processes at a time
LONG_SEGMENTS = 2  # a long prompt has more segments
MAX_TEXT_TOKENS = 96
RANDOM_FOR_EACH_NATURAL = 3


@dataclass(frozen=True)
class Traits:
    """The properties of a model that the requests depend on."""

    vocab_size: int
    context: int  # tokens
    eos: frozenset[int]  # tokens that end an answer
    windows: tuple[int, ...]  # of attention
    encode: Callable[[str], Sequence[int]]  # text to tokens
    grammars: dict[str, str]  # by name
    longest: int  # tokens of the longest prompt


def make_requests(traits: Traits, count: int, num_new: int) -> list[Request]:
    """`count` random requests and one of each natural kind, mixed so that any first part has several kinds."""
    randoms = list(_random(traits, count, num_new))
    parts = [randoms[i : i + RANDOM_FOR_EACH_NATURAL] for i in range(0, len(randoms), RANDOM_FOR_EACH_NATURAL)]
    pairs = zip_longest(parts, _natural(traits, num_new), fillvalue=None)
    return [request for part, natural in pairs for request in [*(part or []), *([natural] if natural else [])]]


# ---- random tokens ----


def _random(traits: Traits, count: int, num_new: int) -> Iterator[Request]:
    """Greedy and sampled requests, with filters, penalties, biases, stops, several samples, logprobs."""
    rng = random.Random(count)
    longest = min(MAX_RANDOM_PROMPT, traits.context - num_new)

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(traits.vocab_size) for _ in range(length))

    shared = tokens(min(SHARED_TOKENS, longest // 2))
    previous: tuple[int, ...] = ()
    for number in range(count):
        length = rng.choice([1, rng.randint(2, 20), rng.randint(15, 17), rng.randint(20, longest)])
        prompt = tokens(length) if number % 3 else shared + tokens(min(length, longest - len(shared)))
        if number % 8 == 7:
            prompt = previous  # repeated, so that all of it may be cached
        previous = prompt
        yield Request(f"r{number}", prompt, _params(number, num_new, rng), eos_token_ids=traits.eos)


def _params(number: int, num_new: int, rng: random.Random) -> SamplingParams:
    kinds = [
        SamplingParams(temperature=0, logprobs=2),
        SamplingParams(logprobs=1),
        SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.3, presence_penalty=0.5, logprobs=0),
        SamplingParams(temperature=0, stop=rng.choice(STOPS), logprobs=1, ignore_eos=True),
        SamplingParams(temperature=1.2, n=3, frequency_penalty=0.4, logprobs=3),
        SamplingParams(top_k=20, logit_bias={3: 5.0, 7: -100.0}, stop=rng.choice(STOPS), n=2, logprobs=0),
        SamplingParams(temperature=0, repetition_penalty=1.1, logprobs=5),
        SamplingParams(temperature=0.7, min_p=0.05),
    ]
    return replace(kinds[number % len(kinds)], seed=rng.getrandbits(63), max_tokens=rng.randint(1, num_new))


# ---- natural text ----


def _natural(traits: Traits, num_new: int) -> Iterator[Request]:
    """Requests with grammars, with long prompts, and with texts in several scripts."""
    rng = random.Random(0)
    greedy = SamplingParams(temperature=0, logprobs=2, ignore_eos=True)
    sampled = SamplingParams(temperature=0.8, top_p=0.95, n=2, logprobs=1)

    def make(name: str, prompt: Sequence[int], params: SamplingParams, pooling: Pooling | None = None) -> Request:
        params = replace(params, seed=rng.getrandbits(63), max_tokens=1 if pooling else num_new)
        return Request(name, tuple(prompt), params, eos_token_ids=traits.eos, pooling=pooling)

    def cut(text: str) -> Sequence[int]:
        return _tokens(traits, text)[: min(MAX_TEXT_TOKENS, traits.context - num_new)]

    for name, grammar in traits.grammars.items():
        yield make(f"{name}, greedy", cut(QUESTION), SamplingParams(temperature=0, grammar=grammar, logprobs=1))
        yield make(f"{name}, sampled", cut(QUESTION), SamplingParams(temperature=1.3, n=2, grammar=grammar))
    story = _long(traits, num_new)
    yield make("long", story, greedy)
    yield make("long, embedding", story, greedy, pooling=Pooling.MEAN)
    yield make("long, another end", [*story[:-5], *story[:5]], sampled)
    for number, (name, text) in enumerate(TEXTS.items()):
        yield make(name, cut(text), sampled if number % 2 else greedy)
    yield make("embedding", cut(ENGLISH), greedy, pooling=Pooling.MEAN)
    yield make("last-token embedding", cut(ENGLISH), greedy, pooling=Pooling.LAST)


def _long(traits: Traits, num_new: int) -> Sequence[int]:
    """A prompt longer than several segments of attention and than every window, up to `traits.longest`."""
    min_length = max(LONG_SEGMENTS * SEGMENT, *traits.windows) + SEGMENT // 2
    text = _tokens(traits, "\n\n".join(TEXTS.values()))
    length = min(min_length, traits.longest, traits.context - num_new)
    return [text[index % len(text)] for index in range(length)]


def _tokens(traits: Traits, text: str) -> Sequence[int]:
    """The text's tokens; one token if the tokenizer cannot encode the text."""
    return [token for token in traits.encode(text) if token < traits.vocab_size] or [0]
