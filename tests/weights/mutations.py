"""Models that are wrong in one to three places: a grammar of mutations behind the parsers, drawn from a seed.

Seeds, not hypothesis: the loader runs in a process of its own with bounded memory, which reports the seed that it is
at. So a hang or a crash of the process names its cause, and `python -m tests.weights.fuzz --seed N` repeats it.
"""

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

NUMBERS = [
    0, 1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 96, 127, 255, 257, 1000, 2**15, 2**16, 2**20, 2**24, 2**31 - 1, 2**31,
    2**32 - 1, 2**62, 2**63 - 1, -1, -2, -16, -(2**31),
]  # fmt: skip
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e-9, 1e9, 1e30, 1e300, float("inf"), float("-inf"), float("nan")]
TEXTS = [
    "",
    " ",
    "a",
    "llama",
    "gpt2",
    "default",
    "yarn",
    "linear",
    "longrope",
    "none",
    "\0",
    "é" * 9,
    "x" * 5000,
    "{{",
]
TEMPLATES = [
    "{{",
    "{% for x in range(10**9) %}a{% endfor %}",
    "{{ messages[0].content }}",
    "{{ ''.__class__ }}",
    "x" * 300_000,
]
WRONG_FLOATS = [b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f"]
DEEP = "[" * 100_000 + "]" * 100_000


def pick_value(random: Random) -> Any:
    """A JSON value of a random type."""
    kinds: list[Callable[[], Any]] = [
        lambda: random.choice(NUMBERS),
        lambda: random.choice(REALS),
        lambda: random.choice(TEXTS),
        lambda: random.choice([None, True, False, [], {}, [[]], [None], {"a": 1}]),
        lambda: [random.choice(NUMBERS) for _ in range(random.randrange(4))],
    ]
    return random.choice(kinds)()


# ---- GGUF, taken apart and put together again ----


@dataclass
class GgufParts:
    """A GGUF file's parts. pairs: key, type, value as bytes. tensors: name, dimensions (ggml's order), type, data."""

    pairs: list[list[Any]]
    tensors: list[list[Any]]


SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


def take_apart(raw: bytes) -> GgufParts:
    num_tensors, num_pairs = struct.unpack_from("<QQ", raw, 8)
    at = 24

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return raw[at - size : at]

    def number(code: str) -> int:
        return int(struct.unpack("<" + code, take(struct.calcsize("<" + code)))[0])

    def text() -> bytes:
        return take(number("Q"))

    def value(kind: int) -> bytes:
        start = at
        if kind == STRING:
            text()
        elif kind == ARRAY:
            inner, count = number("I"), number("Q")
            for _ in range(count):
                value(inner)
        else:
            take(SIZES[kind])
        return raw[start:at]

    pairs: list[list[Any]] = []
    for _ in range(num_pairs):
        key, kind = text(), number("I")
        pairs.append([key, kind, value(kind)])
    entries = []
    for _ in range(num_tensors):
        name = text()
        dims = [number("Q") for _ in range(number("I"))]
        entries.append((name, dims, number("I"), number("Q")))
    start, places = -(-at // 32) * 32, sorted(offset for *_, offset in entries)
    ends = dict(zip(places, [*places[1:], len(raw) - start], strict=True))
    tensors = [[name, dims, kind, raw[start + at : start + ends[at]]] for name, dims, kind, at in entries]
    return GgufParts(pairs, tensors)


def put_together(parts: GgufParts) -> bytes:
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(parts.tensors), len(parts.pairs)))
    for key, kind, value in parts.pairs:
        out += struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value
    at = 0
    for name, dims, kind, data in parts.tensors:
        out += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        out += struct.pack("<IQ", kind, at)
        at += -(-len(data) // 32) * 32
    out += b"\0" * (-len(out) % 32)
    for *_, data in parts.tensors:
        out += data + b"\0" * (-len(data) % 32)
    return bytes(out)


def gguf_value(random: Random) -> tuple[int, bytes]:
    kind = random.choice([4, 4, 4, 5, 6, 6, 7, 10, 11, 12, STRING, ARRAY])
    if kind == STRING:
        text = random.choice([*TEXTS, *TEMPLATES]).encode()
        return kind, struct.pack("<Q", len(text)) + text
    if kind == ARRAY:
        inner = random.choice([4, 5, 6, STRING])
        items = [
            _scalar(inner, random) if inner != STRING else struct.pack("<Q", 1) + b"a"
            for _ in range(random.randrange(5))
        ]
        return kind, struct.pack("<IQ", inner, len(items)) + b"".join(items)
    return kind, _scalar(kind, random)


def _scalar(kind: int, random: Random) -> bytes:
    if kind in (6, 12):
        value = random.choice(REALS)
        return struct.pack(
            "<f" if kind == 6 else "<d", value if kind == 12 or abs(value) < 1e38 or value != value else 1e38
        )
    size = SIZES[kind]
    return (random.choice(NUMBERS) % 2 ** (8 * size)).to_bytes(size, "little") if kind != 7 else b"\1"


def mutate_gguf(source: Path, target: Path, random: Random) -> Path:
    parts = take_apart(source.read_bytes())
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        if random.random() < 0.65:
            _mutate_pair(parts, random)
        else:
            _mutate_tensor(parts, random)
    path = target / "model.gguf"
    path.write_bytes(put_together(parts))
    return path


def _mutate_pair(parts: GgufParts, random: Random) -> None:
    pair = random.choice(parts.pairs)
    match random.choice(["value", "value", "number", "number", "array", "remove", "name", "swap"]):
        case "value":
            pair[1:] = gguf_value(random)
        case "number" if pair[1] in SIZES:
            pair[2] = _scalar(pair[1], random)
        case "array" if pair[1] == ARRAY:
            _mutate_array(pair, random)
        case "remove":
            parts.pairs.remove(pair)
        case "name":
            pair[0] = random.choice([b"", b"general.architecture", b"llama.x", pair[0] + b"x"])
        case _:
            other = random.choice(parts.pairs)
            pair[1:], other[1:] = other[1:], pair[1:]


def _mutate_array(pair: list[Any], random: Random) -> None:
    """The array with one item changed, or with its last items cut off."""
    inner, count = struct.unpack_from("<IQ", pair[2])
    if inner == STRING:
        at, items = 12, []
        for _ in range(count):
            (length,) = struct.unpack_from("<Q", pair[2], at)
            items.append(pair[2][at + 8 : at + 8 + length])
            at += 8 + length
        keep = random.choice([count, count, count // 2, 1, 0])
        items = items[:keep]
        if items:
            items[random.randrange(len(items))] = random.choice([*TEXTS, "a b", "<0xZZ>", "</s>"]).encode()
        pair[2] = struct.pack("<IQ", inner, len(items)) + b"".join(
            struct.pack("<Q", len(item)) + item for item in items
        )
        return
    size = SIZES[inner]
    data = bytearray(pair[2][12:])
    for _ in range(random.choice([1, 5])):
        at = random.randrange(max(1, len(data) // size)) * size
        data[at : at + size] = _scalar(inner, random)
    data = data[: random.choice([len(data), len(data) // size // 2 * size])]
    pair[2] = struct.pack("<IQ", inner, len(data) // size) + data


def _mutate_tensor(parts: GgufParts, random: Random) -> None:
    tensor = random.choice(parts.tensors)
    match random.choice(["remove", "rename", "swap", "dims", "half", "values", "layer"]):
        case "remove":
            parts.tensors.remove(tensor)
        case "rename":
            tensor[0] += b"x"
        case "swap":
            other = random.choice(parts.tensors)
            tensor[0], other[0] = other[0], tensor[0]
        case "dims":
            tensor[1] = random.choice([tensor[1][::-1], [*tensor[1], 1], [_product(tensor[1])]])
        case "half":
            tensor[1] = [*tensor[1][:-1], max(1, tensor[1][-1] // 2)]
            tensor[3] = tensor[3][: 4 * _product(tensor[1])]
        case "values":
            bad = random.choice(WRONG_FLOATS)
            data = bytearray(tensor[3])
            at = random.randrange(len(data) // 4) * 4
            data[at : at + 4] = bad
            tensor[3] = bytes(data)
        case "layer":
            tensor[0] = tensor[0].replace(b"blk.0.", b"blk.%d." % random.choice([5, 9, 1023, 99_999, 10**12]))


def _product(sizes: list[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


# ---- Hugging Face folders ----

INDEX = "model.safetensors.index.json"
JSON_FILES = [*["config.json"] * 3, "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
NEW_KEYS = ["eos_token_id", "chat_template", "bos_token", "rope_scaling", "text_config", "quantization_config"]


def mutate_folder(source: Path, target: Path, random: Random) -> Path:
    for file in source.iterdir():
        os.link(file, target / file.name)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        match random.choice(["json"] * 7 + ["file", "weights", "weights", "shards", "template"]):
            case "json":
                _mutate_json_file(target / random.choice(JSON_FILES), random)
            case "file":
                _replace_file(target, random)
            case "weights":
                _mutate_safetensors(target / "model.safetensors", random)
            case "shards":
                _split(target, random)
            case "template":
                _rewrite(target / "chat_template.jinja", random.choice(TEMPLATES).encode())
    return target


def _rewrite(path: Path, data: bytes) -> None:
    """Writes a new file: the old one is a link to the source's."""
    _remove(path)
    path.write_bytes(data)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _mutate_json_file(path: Path, random: Random) -> None:
    try:
        tree = json.loads(path.read_bytes()) if path.is_file() and not path.is_symlink() else {}
    except (ValueError, RecursionError):
        return
    if random.random() < 0.15 and path.name != "tokenizer.json":
        tree = {**tree, random.choice(NEW_KEYS): pick_value(random)} if isinstance(tree, dict) else tree
    else:
        _mutate_tree(tree, random)
    _rewrite(path, json.dumps(tree).encode())


def _mutate_tree(tree: Any, random: Random) -> None:
    """Mutates a random place in lists and objects; shallow places are more likely."""
    while isinstance(tree, dict | list) and tree:
        key = random.choice(list(tree)) if isinstance(tree, dict) else random.randrange(len(tree))
        if isinstance(tree[key], dict | list) and tree[key] and random.random() < 0.7:
            tree = tree[key]
            continue
        match random.choice(["value", "value", "value", "remove", "again"]):
            case "value":
                tree[key] = pick_value(random)
            case "remove":
                del tree[key]
            case "again" if isinstance(tree, list):
                tree.append(tree[key])
            case _:
                tree["x"] = tree[key]
        return


def _replace_file(target: Path, random: Random) -> None:
    """Replaces a file by something else."""
    names = [file.name for file in target.iterdir()]
    path = target / random.choice([*names, INDEX, "chat_template.json"])
    old = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    shards = random.choice([["../x"], ["model.safetensors"], ["none.safetensors"], [7], [None]])
    index = json.dumps({"weight_map": {str(number): name for number, name in enumerate(shards)}})
    others: list[Callable[[Path], Any]] = [
        lambda path: None,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(old[: len(old) // 2]),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/etc/hostname"),
        lambda path: path.symlink_to(path.name),
        lambda path: path.mkdir(),
        lambda path: path.write_text(f'{{"a":{DEEP}}}'),
        lambda path: path.write_text("[1, 2]"),
        lambda path: path.write_bytes(b"\xff\xfe\0" * 100),
        lambda path: _rewrite(path.parent / INDEX, index.encode()),
    ]
    _remove(path)
    random.choice(others)(path)


def _mutate_safetensors(path: Path, random: Random) -> None:
    if not path.is_file() or path.is_symlink():
        return
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    if random.random() < 0.3:
        _rewrite(path, _mutate_raw_header(raw[8 : 8 + size], raw[8 + size :], random))
        return
    try:
        header, data = json.loads(raw[8 : 8 + size]), bytearray(raw[8 + size :])
    except (ValueError, RecursionError):
        return
    if isinstance(header, dict) and header:
        _mutate_header(header, data, random)
    _rewrite(path, _safetensors(json.dumps(header).encode(), data))


def _safetensors(header: bytes, data: bytes, size: int | None = None) -> bytes:
    return (len(header) if size is None else size % 2**64).to_bytes(8, "little") + header + data


def _mutate_raw_header(header: bytes, data: bytes, random: Random) -> bytes:
    """The file with a header that may be no JSON, or not of the length that it states."""
    at = random.randrange(max(1, len(header)))
    match random.choice(["length", "near", "cut", "insert", "byte", "twice", "deep", "wide"]):
        case "length":
            return _safetensors(header, data, random.choice(NUMBERS))
        case "near":
            return _safetensors(header, data, len(header) + random.choice([-1, 1, 8, -len(header) // 2]))
        case "cut":
            return _safetensors(header, data)[: random.choice([0, 7, 8, 8 + at, 8 + len(header)])]
        case "insert":
            junk = random.choice([b"0", b"9" * 5000, b"[", b"{", b'"', b"\\ud800", b"NaN", b"\xff", b"\0"])
            return _safetensors(header[:at] + junk + header[at:], data)
        case "byte":
            return _safetensors(header[:at] + bytes([random.randrange(256)]) + header[at + 1 :], data)
        case "twice":
            return _safetensors(header.rstrip()[:-1] + b"," + header.lstrip()[1:], data)
        case "deep":
            return _safetensors(header.rstrip()[:-1] + f',"x":{DEEP}}}'.encode(), data)
        case _:
            return _safetensors(header.rstrip()[:-1] + b',"x":[' + b"[]," * 100_000 + b"1]}", data)


def _split(folder: Path, random: Random) -> None:
    """The checkpoint in two shards, of which the index is wrong in one place or none."""
    path = folder / "model.safetensors"
    try:
        raw = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")] or b"{}")
    except (ValueError, RecursionError):
        return
    if not isinstance(header, dict):
        return
    names = [name for name in header if name != "__metadata__"]
    shards = {name: f"{random.choice('ab')}.safetensors" for name in names}
    for shard in set(shards.values()):
        own = json.dumps({name: header[name] for name in names if shards[name] == shard}).encode()
        _rewrite(folder / shard, _safetensors(own, raw[8 + int.from_bytes(raw[:8], "little") :]))
    index = {"metadata": {"total_size": len(raw)}, "weight_map": shards}
    if random.random() < 0.8:
        _mutate_tree(index, random)
    _remove(path)
    _rewrite(folder / INDEX, json.dumps(index).encode())


def _mutate_header(header: dict[str, Any], data: bytearray, random: Random) -> None:
    name, other = random.choice(list(header)), random.choice(list(header))
    entry = header[name]
    match random.choice(["remove", "rename", "swap", "shape", "type", "values", "tree"]), entry:
        case "remove", _:
            del header[name]
        case "rename", _:
            header[name.replace("layers.0", f"layers.{random.choice([3, 99, 10**7])}") + "x"] = header.pop(name)
        case "swap", _:
            header[name], header[other] = header[other], header[name]
        case "shape", {"shape": [*shape]}:
            entry["shape"] = random.choice([shape[::-1], [*shape, 1], [1, *shape]])
        case "type", {}:
            entry["dtype"] = random.choice(["F32", "I32", "U32", "F8_E4M3", "BF16", "F99"])
        case "values", {"data_offsets": [int(at), _]}:
            data[at : at + 4] = random.choice(WRONG_FLOATS)
        case _:
            _mutate_tree(header, random)


def mutate(source: Path, target: Path, seed: int) -> Path:
    """Makes a mutated copy in the empty folder `target`. Returns the path to load."""
    random = Random(seed)
    return mutate_folder(source, target, random) if source.is_dir() else mutate_gguf(source, target, random)
