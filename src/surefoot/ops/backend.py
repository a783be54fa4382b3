"""The backend: a loaded library variant with its threads, on which every operation runs; and programs, which replay
recorded operations: at the shape they were recorded at, or at any shape, by rewriting their arguments.

Owns the library handle, the native context with its threads on NUMA nodes and the choice of variant. Does not know what
an operation computes.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from ctypes import CDLL, POINTER, Structure, addressof, byref, c_char_p, c_int32, c_int64, c_uint64, c_void_p, sizeof
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.machine import Placement, architecture, choose_placement, usable_cores
from surefoot.ops import abi
from surefoot.ops.pages import Pages

LIBRARIES = Path(__file__).parent / "_lib"

# Of the processors whose variants differ: names of the bits of sf_features(), and the features that a variant needs.
# Best first.
_FEATURES = {
    "x86_64": {
        "avx2": 1, "avx512": 2, "avx512_vnni": 4, "amx_int8": 8, "amx_bf16": 16, "amx_permitted": 32, "avx_vnni": 64
    },
    "aarch64": {"dotprod": 128, "i8mm": 256},
}  # fmt: skip
_NEEDS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "amx": ("avx2", "avx512", "avx512_vnni", "amx_int8", "amx_bf16", "amx_permitted"),
        "avx512": ("avx2", "avx512", "avx512_vnni"),
        "avxvnni": ("avx2", "avx_vnni"),
        "avx512bw": ("avx2", "avx512"),
        "avx2": ("avx2",),
    },
    "aarch64": {"i8mm": ("dotprod", "i8mm"), "neon": ("dotprod",)},
}
# Those of this machine's kind.
FEATURES: dict[str, int] = _FEATURES.get(architecture(), {})
NEEDS: dict[str, tuple[str, ...]] = {**_NEEDS.get(architecture(), {}), "portable": ()}


class OpError(RuntimeError):
    """A native operation refused its arguments."""


class Stopped(Exception):
    """A program ended before its last operation, because of `Backend.stop`."""


class VariantError(RuntimeError):
    """The requested variant cannot run on this machine, or is not installed."""


@cache
def load_library(variant: str) -> CDLL:
    path = LIBRARIES / f"libsurefoot_{variant}.so"
    if not path.exists():
        raise VariantError(f"variant {variant!r} is not installed ({path.name} is missing); reinstall surefoot")
    lib = CDLL(str(path))
    lib.sf_features.restype = c_uint64
    lib.sf_op.argtypes = [c_char_p]
    lib.sf_op.restype = c_int32
    lib.sf_args_bytes.argtypes = [c_int32]
    lib.sf_args_bytes.restype = c_int64
    lib.sf_error.argtypes = [c_int32]
    lib.sf_error.restype = c_char_p
    lib.sf_open.argtypes = [c_int32, POINTER(c_int32)]
    lib.sf_open.restype = c_void_p
    lib.sf_close.argtypes = [c_void_p]
    lib.sf_close.restype = None
    lib.sf_run.argtypes = [c_void_p, c_void_p, c_int64, POINTER(c_int64)]
    lib.sf_run.restype = c_int32
    lib.sf_stop.argtypes = [c_void_p, c_int32]
    lib.sf_stop.restype = None
    lib.sf_use_threads.argtypes = [c_void_p, c_int32]
    lib.sf_use_threads.restype = None
    lib.sf_bind.argtypes = [c_void_p, c_int32, POINTER(c_int32), c_int64]
    lib.sf_bind.restype = c_int32
    lib.sf_node_end.argtypes = [c_void_p, c_int32, c_int64, c_int64]
    lib.sf_node_end.restype = c_int64
    lib.sf_prefer_nodes.argtypes = [c_void_p, c_int64, POINTER(c_int32), c_int64]
    lib.sf_prefer_nodes.restype = c_int32
    lib.sf_packed_bytes.argtypes = [c_int64, c_int64, *[c_int32] * 6]
    lib.sf_packed_bytes.restype = c_int64
    lib.sf_alloc.argtypes = [c_int64]
    lib.sf_alloc.restype = c_void_p
    lib.sf_free.argtypes = [c_void_p, c_int64]
    lib.sf_free.restype = None
    lib.sf_kv_record_bytes.argtypes = [c_void_p]
    lib.sf_kv_record_bytes.restype = c_int64
    return lib


@cache
def cpu_features() -> frozenset[str]:
    """Features that the processor has and the operating system allows, as detected by the portable library."""
    bits = load_library("portable").sf_features()
    return frozenset(name for name, bit in FEATURES.items() if bits & bit)


def missing_features(variant: str) -> tuple[str, ...]:
    """Features that the variant needs and this machine lacks."""
    return tuple(need for need in NEEDS[variant] if need not in cpu_features())


def supported_variants() -> tuple[str, ...]:
    """Variants that this machine can run, best first."""
    return tuple(variant for variant in NEEDS if not missing_features(variant))


def choose_variant(asked: str | None = None) -> str:
    """The requested variant (by argument or SUREFOOT_VARIANT), or else the best that this machine can run."""
    asked = asked or os.environ.get("SUREFOOT_VARIANT")
    if not asked:
        return supported_variants()[0]
    runs = f"this machine runs {', '.join(supported_variants())}: ask for one of these, or unset SUREFOOT_VARIANT"
    if asked not in NEEDS:
        raise VariantError(f"no variant is named {asked!r}; {runs}")
    if missing := missing_features(asked):
        raise VariantError(f"variant {asked!r} needs {', '.join(missing)}, which this machine lacks; {runs}")
    return asked


class Backend:
    """A variant's library and a native context with its own threads.

    With several NUMA nodes each thread runs on the processors of one node, but for the caller's, which is the program's
    own: threads that it starts would inherit the binding.

    Operations run one at a time. Inside `record()` they are recorded instead, and the `Program` replays them in one
    native call.
    """

    def __init__(
        self, variant: str | None = None, threads: int | None = None, placement: Placement | None = None
    ) -> None:
        """placement: of the threads on NUMA nodes; None: what suits this machine."""
        self.variant = choose_variant(variant)
        self.threads = threads or usable_cores()
        self.placement = choose_placement(self.threads) if placement is None else placement
        self._lib = load_library(self.variant)
        self._ops = {name: self._op(name, struct) for name, struct in abi.OPERATIONS.items()}
        self._process = os.getpid()
        self._context = self._open()
        self.pages = Pages(self.placement, self._prefer_nodes)
        self._recording: Program | None = None
        self.native_seconds = 0.0  # total time in native calls

    def _open(self) -> Any:
        """A native context whose threads are bound to their nodes."""
        shares = self.placement.shares
        nodes = self.placement.node_of_thread()
        if shares and len(nodes) != self.threads:
            raise ValueError(f"a placement of {len(nodes)} threads, but there are {self.threads}")
        context = self._lib.sf_open(self.threads, _int32s(nodes) if shares else None)
        if not context:
            raise VariantError(f"variant {self.variant!r} could not be opened with {self.threads} threads")
        for index, share in enumerate(shares):
            self._lib.sf_bind(context, index, _int32s(share.cpus), len(share.cpus))
        return context

    def _prefer_nodes(self, address: int, nbytes: int, nodes: Sequence[int]) -> int:
        return int(self._lib.sf_prefer_nodes(address, nbytes, _int32s(nodes), len(nodes)))

    def node_ends(self, outputs: int, nbytes: int) -> list[int]:
        """Where in a packed matrix the rows end that each node's threads multiply, in bytes, by share."""
        return [self._lib.sf_node_end(self._context, i, outputs, nbytes) for i in range(len(self.placement.shares))]

    @property
    def recording(self) -> bool:
        return self._recording is not None

    def _op(self, name: str, struct: type[Structure]) -> int:
        op = int(self._lib.sf_op(name.encode()))
        if op < 0 or self._lib.sf_args_bytes(op) != sizeof(struct):
            raise VariantError(f"operation {name!r} differs between Python and {self.variant}; reinstall surefoot")
        return op

    @property
    def library(self) -> CDLL:
        """The library, for functions of the ABI that need no context."""
        return self._lib

    def run(self, name: str, args: Structure, *keep: Any) -> None:
        """Run (or record) one operation. keep: the arrays that the struct points into."""
        op = self._ops[name]
        if self._recording is not None:
            self._recording.append(op, args, keep)
            return
        self.replay((abi.Call * 1)(abi.Call(op, 0, addressof(args))))

    def replay(self, calls: Any) -> None:
        """Run an array of `abi.Call` in one native call."""
        failed, count, start = c_int64(0), len(calls), time.perf_counter()
        code = self._lib.sf_run(self._context, calls, count, byref(failed))
        self.native_seconds += time.perf_counter() - start
        if code == abi.STOPPED:
            raise Stopped
        if code:
            name = next(n for n, op in self._ops.items() if op == calls[failed.value].op)
            raise OpError(f"{name}: {self._lib.sf_error(code).decode()} (call {failed.value + 1} of {count})")

    def stop(self, stop: bool = True) -> None:
        """From any thread: while set, programs end before their next operation. Single operations are never stopped."""
        self._lib.sf_stop(self._context, stop)

    def use_threads(self, num_threads: int) -> None:
        """Compute with at most this many of the threads, between two calls. Results do not change."""
        self._lib.sf_use_threads(self._context, num_threads)

    @contextmanager
    def record(self) -> Iterator["Program"]:
        """Record operations instead of running them."""
        program = Program(self)
        previous, self._recording = self._recording, program
        try:
            yield program
        finally:
            self._recording = previous

    def close(self) -> None:
        """End the threads. They are not among those of a forked child, which only forgets them."""
        if self._context and self._process == os.getpid():
            self._lib.sf_close(self._context)
        self._context = None

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self.close()


def _int32s(numbers: Sequence[int]) -> Any:
    return (c_int32 * len(numbers))(*numbers)


class Program:
    """Recorded operations over fixed arrays, replayed in one native call."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.calls: list[tuple[int, Structure]] = []
        self._keep: list[Any] = []
        self._packed: Any = None

    def append(self, op: int, args: Structure, keep: tuple[Any, ...]) -> None:
        self.calls.append((op, args))
        self._keep.append(keep)
        self._packed = None

    def __len__(self) -> int:
        return len(self.calls)

    def run(self) -> None:
        if self._packed is None:
            calls = [abi.Call(op, 0, addressof(args)) for op, args in self.calls]
            self._packed = (abi.Call * len(calls))(*calls)
        self._backend.replay(self._packed)


# ---- programs for any shape ----

Shape = tuple[int, ...]
Words = NDArray[np.int64]


class ShapeError(ValueError):
    """The program's arguments are not linear in the shape's counts."""


class ShapedProgram:
    """A program whose arguments are linear in the shape: each 64-bit word is a constant plus a multiple of each count.

    The multiples are found by recording at the largest shape and with each count halved in turn. One more recording
    checks them. All recordings must use the same arrays. Raises ShapeError otherwise: a recording that allocates arrays
    differs from the next recording of the same shape.
    """

    def __init__(self, backend: Backend, record: Callable[[Shape], Program], largest: Shape) -> None:
        self._backend = backend
        self.largest = largest
        self._first = record(largest)  # keeps its arrays alive
        self._words = _words(self._first)
        self._calls = _calls(self._first, self._words)
        if (_words_like(self._first, record(largest)) != self._words).any():
            raise ShapeError("the recording makes arrays of its own")
        slopes = [self._slope(record, number) for number in range(len(largest))]
        indices = np.flatnonzero(np.any(slopes, axis=0))
        self._indices, self._slopes = indices, np.stack(slopes)[:, indices].T.copy()  # words that depend on the shape
        self._constants = self._words[indices] - self._slopes @ np.array(largest)
        self._check(record)
        self._shape = largest  # of the current words

    def run(self, shape: Shape) -> None:
        if shape != self._shape:
            self._words[self._indices] = self._varying(shape)
            self._shape = shape
        self._backend.replay(self._calls)

    def beginning(self, record: Callable[[Shape], Program], shape: Shape) -> "ShapedProgram":
        """The part of this program that `record(shape)` records. Raises ShapeError unless it is the program's
        beginning."""
        recorded = record(shape)
        words = _words(recorded)
        ops, all_ops = [op for op, _ in recorded.calls], [op for op, _ in self._first.calls]
        if ops != all_ops[: len(ops)] or (words != self._at(shape)[: len(words)]).any():
            raise ShapeError("not the beginning of the program")
        part = copy(self)
        part._words, part._shape = words, shape
        part._calls = _calls(recorded, words)
        inside = self._indices < len(words)
        part._indices, part._slopes, part._constants = (
            array[inside] for array in (self._indices, self._slopes, self._constants)
        )
        return part

    def _at(self, shape: Shape) -> Words:
        """All words at this shape."""
        words = self._words.copy()
        words[self._indices] = self._varying(shape)
        return words

    def _varying(self, shape: Shape) -> Words:
        """The words that depend on the shape, at this shape."""
        values: Words = self._constants + self._slopes @ np.array(shape)
        return values

    def _slope(self, record: Callable[[Shape], Program], number: int) -> Words:
        """The change of each word per unit of this count."""
        halved = _part(self.largest, 2, [number])
        step = self.largest[number] - halved[number]
        if not step:
            return np.zeros_like(self._words)
        slope, rest = np.divmod(self._words - _words_like(self._first, record(halved)), step)
        if rest.any():
            raise ShapeError("an argument grows by steps")
        return slope

    def _check(self, record: Callable[[Shape], Program]) -> None:
        shape = third_of(self.largest)
        if (self._at(shape) != _words_like(self._first, record(shape))).any():
            raise ShapeError("an argument is no sum of multiples of the counts")


def third_of(shape: Shape) -> Shape:
    return _part(shape, 3, range(len(shape)))


def _part(shape: Shape, divisor: int, numbers: Sequence[int]) -> Shape:
    """The shape with these counts divided, but not below 2: arrays of one row have other strides."""
    return tuple(min(size, max(2, size // divisor)) if i in numbers else size for i, size in enumerate(shape))


def _words(program: Program) -> Words:
    return np.concatenate([np.frombuffer(memoryview(args), np.int64) for _, args in program.calls])


def _words_like(first: Program, other: Program) -> Words:
    if [op for op, _ in first.calls] != [op for op, _ in other.calls]:
        raise ShapeError("other operations at another shape")
    return _words(other)


def _calls(program: Program, words: Words) -> Any:
    """The program's calls with the words as their arguments."""
    calls, address = [], words.ctypes.data
    for op, args in program.calls:
        calls.append(abi.Call(op, 0, address))
        address += sizeof(args)
    return (abi.Call * len(calls))(*calls)
