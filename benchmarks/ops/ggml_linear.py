"""llama.cpp's matmul (ggml), called through ctypes inside the peer's process (see worker.py).

Weights go where llama.cpp puts a model's: into the first of the CPU's extra buffer types (AMX, then repacked rows) that
supports the matmul, or else into plain memory. One graph holds the calls of one sample, like a model's graph.
"""

import random
import time
from array import array
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    RTLD_GLOBAL,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_void_p,
    memmove,
)  # fmt: skip
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

TYPES = {"f32": 0, "q4_0": 2, "q8_0": 8}


class InitParams(Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


class Feature(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


# Result first, then arguments. A tensor, graph, buffer or backend is a plain pointer here.
P = c_void_p
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ggml_init": (P, InitParams),
    "ggml_tensor_overhead": (c_size_t,),
    "ggml_graph_overhead_custom": (c_size_t, c_size_t, c_bool),
    "ggml_new_tensor_2d": (P, P, c_int, c_int64, c_int64),
    "ggml_mul_mat": (P, P, P, P),
    "ggml_new_graph_custom": (P, P, c_size_t, c_bool),
    "ggml_build_forward_expand": (None, P, P),
    "ggml_nbytes": (c_size_t, P),
    "ggml_get_data": (P, P),
    "ggml_row_size": (c_size_t, c_int, c_int64),
    "ggml_quantize_chunk": (c_size_t, c_int, P, P, c_int64, c_int64, c_int64, P),
    "ggml_backend_cpu_init": (P,),
    "ggml_backend_cpu_set_n_threads": (None, P, c_int),
    "ggml_backend_get_device": (P, P),
    "ggml_backend_dev_backend_reg": (P, P),
    "ggml_backend_dev_supports_op": (c_bool, P, P),
    "ggml_backend_dev_buffer_type": (P, P),
    "ggml_backend_reg_get_proc_address": (P, P, c_char_p),
    "ggml_backend_buft_name": (c_char_p, P),
    "ggml_backend_buft_alloc_buffer": (P, P, c_size_t),
    "ggml_backend_buft_get_alloc_size": (c_size_t, P, P),
    "ggml_backend_buffer_get_base": (P, P),
    "ggml_backend_buffer_set_usage": (None, P, c_int),
    "ggml_backend_tensor_alloc": (c_int, P, P, P),
    "ggml_backend_tensor_set": (None, P, P, c_size_t, c_size_t),
    "ggml_backend_graph_compute": (c_int, P, P),
}
USAGE_WEIGHTS = 1
ALIGNMENT = 4096


class Ggml:
    """The functions of SIGNATURES, found in the libraries."""

    def __init__(self, libraries: list[str]) -> None:
        loaded = [CDLL(path, mode=RTLD_GLOBAL) for path in libraries]
        for name, (result, *arguments) in SIGNATURES.items():
            function = next(getattr(lib, name) for lib in loaded if hasattr(lib, name))
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ggml_{name} is not declared")


@dataclass
class Matrices:
    """Weight tensors of the same shape and format in one buffer."""

    tensors: list[int]
    n: int  # outputs
    k: int  # columns
    next: int = 0  # first tensor of the next sample
    graphs: dict[tuple[int, int, int], int] = field(default_factory=dict)  # by rows, first tensor and calls


class GgmlLinear:
    """An engine for worker.py."""

    def __init__(self, threads: int, libraries: list[str], build: str) -> None:
        self._ggml = Ggml(libraries)
        self._build = build
        self._backend = self._ggml.backend_cpu_init()
        self._ggml.backend_cpu_set_n_threads(self._backend, threads)
        self._device = self._ggml.backend_get_device(self._backend)
        self._registry = self._ggml.backend_dev_backend_reg(self._device)
        self._plain = self._ggml.backend_dev_buffer_type(self._device)
        self._matrices: dict[str, Matrices] = {}
        self._buffer_names: set[str] = set()
        self._shared: dict[str, tuple[int, int]] = {}

    def describe(self) -> dict[str, Any]:
        return {
            "engine": "llama.cpp (ggml)",
            "build": self._build,
            "features": self._features(),
            "buffers": sorted(self._buffer_names),
        }

    def prepare(self, key: str, n: int, k: int, format: str, matrices: int) -> dict[str, Any]:
        ggml, type_id = self._ggml, TYPES[format]
        kind = self._buffer_type(n, k, type_id)
        context = self._context(matrices, 0)
        tensors = [ggml.new_tensor_2d(context, type_id, k, n) for _ in range(matrices)]
        size = _round_up(ggml.backend_buft_get_alloc_size(kind, tensors[0]))
        start = self._place(kind, tensors, size)
        self._fill(tensors[0], type_id, n, k)
        for i in range(1, matrices):  # copies of the packed form, to be read from other memory
            memmove(start + i * size, start, size)
        self._matrices[key] = Matrices(tensors, n, k)
        name = ggml.backend_buft_name(kind).decode()
        self._buffer_names.add(name)
        return {"bytes": ggml.nbytes(tensors[0]), "buffer": name}

    def run(self, key: str, rows: int, calls: int) -> float:
        matrices = self._matrices[key]
        sample = (rows, matrices.next, calls)
        matrices.next = (matrices.next + calls) % len(matrices.tensors)
        if sample not in matrices.graphs:
            matrices.graphs[sample] = self._graph(matrices, *sample)
        begin = time.perf_counter()
        status = self._ggml.backend_graph_compute(self._backend, matrices.graphs[sample])
        seconds = time.perf_counter() - begin
        if status:
            raise RuntimeError(f"ggml_backend_graph_compute gave {status}")
        return seconds

    def weights(self, length: int) -> dict[str, Any]:
        """The first `length` values of every matrix, before they are quantised."""
        return {"values": list(_noise(length))}

    def product(self, key: str, x: list[float]) -> dict[str, Any]:
        """The last matrix times one row, to check that a real product is computed."""
        matrices = self._matrices[key]
        graph, inputs, outputs = self._build_graph(matrices, 1, len(matrices.tensors) - 1, 1)
        values = array("f", x)
        memmove(self._ggml.get_data(inputs), values.buffer_info()[0], 4 * matrices.k)
        self._ggml.backend_graph_compute(self._backend, graph)
        return {"values": list((c_float * matrices.n).from_address(self._ggml.get_data(outputs)))}

    def _context(self, tensors: int, nodes: int) -> int:
        size = tensors * self._ggml.tensor_overhead() + 4096
        if nodes:
            size += self._ggml.graph_overhead_custom(nodes, False)
        return int(self._ggml.init(InitParams(size, None, True)))

    def _graph(self, matrices: Matrices, rows: int, start: int, calls: int) -> int:
        return self._build_graph(matrices, rows, start, calls)[0]

    def _build_graph(self, matrices: Matrices, rows: int, start: int, calls: int) -> tuple[int, int, int]:
        """A graph that multiplies the same rows with `calls` matrices, its input and its last output. All outputs share
        memory."""
        ggml = self._ggml
        context = self._context(calls + 1, 2 * calls + 2)
        graph = ggml.new_graph_custom(context, 2 * calls + 2, False)
        x = ggml.new_tensor_2d(context, TYPES["f32"], matrices.k, rows)
        self._share("x", x)
        for i in range(start, start + calls):
            y = ggml.mul_mat(context, matrices.tensors[i % len(matrices.tensors)], x)
            self._share("y", y)
            ggml.build_forward_expand(graph, y)
        return graph, x, y

    def _place(self, kind: int, tensors: list[int], size: int) -> int:
        """Places tensors one after the other in a new buffer. Returns the address of the first."""
        ggml = self._ggml
        buffer = ggml.backend_buft_alloc_buffer(kind, size * len(tensors) + ALIGNMENT)
        if not buffer:
            raise MemoryError(f"no buffer of {size * len(tensors)} bytes")
        ggml.backend_buffer_set_usage(buffer, USAGE_WEIGHTS)
        start = _round_up(ggml.backend_buffer_get_base(buffer))
        for i, tensor in enumerate(tensors):
            ggml.backend_tensor_alloc(buffer, tensor, start + i * size)
        return start

    def _share(self, name: str, tensor: int) -> None:
        """Gives a tensor plain memory, the same for all tensors of this name. Older graphs keep an outgrown buffer."""
        ggml, needed = self._ggml, self._ggml.nbytes(tensor)
        buffer, size = self._shared.get(name, (0, 0))
        if size < needed:
            buffer = ggml.backend_buft_alloc_buffer(self._plain, needed)
            self._shared[name] = (buffer, needed)
            values = _noise(needed // 4)
            memmove(ggml.backend_buffer_get_base(buffer), values.buffer_info()[0], needed)
        ggml.backend_tensor_alloc(buffer, tensor, ggml.backend_buffer_get_base(buffer))

    def _fill(self, tensor: int, type_id: int, n: int, k: int) -> None:
        row_bytes = self._ggml.row_size(type_id, k)
        encoded = bytearray(row_bytes * n)
        target = (c_char * len(encoded)).from_buffer(encoded)
        values = _noise(n * k)
        self._ggml.quantize_chunk(type_id, values.buffer_info()[0], target, 0, n, k, None)
        self._ggml.backend_tensor_set(tensor, target, 0, len(encoded))

    def _buffer_type(self, n: int, k: int, type_id: int) -> int:
        """The first buffer type that supports the matmul, as llama.cpp chooses for a model's weights."""
        return next((kind for kind in self._extra_buffer_types() if self._serves(kind, n, k, type_id)), self._plain)

    def _serves(self, kind: int, n: int, k: int, type_id: int) -> bool:
        ggml, context = self._ggml, self._context(3, 0)
        weights = ggml.new_tensor_2d(context, type_id, k, n)
        self._place(kind, [weights], ggml.backend_buft_get_alloc_size(kind, weights))  # never touched: costs nothing
        product = ggml.mul_mat(context, weights, ggml.new_tensor_2d(context, TYPES["f32"], k, 512))
        return bool(ggml.backend_dev_supports_op(self._device, product))

    def _extra_buffer_types(self) -> list[int]:
        address = self._ggml.backend_reg_get_proc_address(self._registry, b"ggml_backend_dev_get_extra_bufts")
        if not address:
            return []
        return _until_null(CFUNCTYPE(POINTER(P), P)(address)(self._device))

    def _features(self) -> list[str]:
        address = self._ggml.backend_reg_get_proc_address(self._registry, b"ggml_backend_get_features")
        features = CFUNCTYPE(POINTER(Feature), P)(address)(self._registry)
        return [f.name.decode() for f in takewhile(lambda f: f.name, (features[i] for i in count()))]


def _until_null(pointers: Any) -> list[int]:
    return list(takewhile(bool, (pointers[i] for i in count())))


def _round_up(value: int) -> int:
    return -(-value // ALIGNMENT) * ALIGNMENT


def _noise(length: int) -> "array[float]":
    """A short sequence of random floats, repeated. It is quick to create, and no value affects the time of a matmul."""
    source = random.Random(0)
    stretch = array("f", (source.gauss(0, 1) for _ in range(4099)))
    return (stretch * (length // len(stretch) + 1))[:length]


def open_engine(threads: int, options: dict[str, Any]) -> GgmlLinear:
    return GgmlLinear(threads, options["libraries"], options["build"])
