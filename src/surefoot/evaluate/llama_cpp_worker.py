"""llama.cpp in a separate process: `llama_cpp_worker.py LIBRARY MODEL CONTEXT THREADS`.

It writes the size of the vocabulary (8 bytes). For each line, the token ids of a window as JSON, it writes the float32
logits of all tokens. Standard library only."""

import ctypes
import json
import os
import sys
from collections.abc import Sequence


class _Parameters(ctypes.Structure):
    """llama_model_params or llama_context_params, passed by value. It is larger than in any version of the library,
    which reads only its own part.

    llama_context_params begins with three 32-bit numbers: the context length, the batch size, the micro-batch size."""

    _fields_ = [("words", ctypes.c_uint32 * 256)]


class _Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


# llama.cpp keeps the pointer: it must outlive the call that hands it over.
SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: None)


class LlamaModel:
    def __init__(self, library: str, path: str, context: int, threads: int) -> None:
        self._lib = lib = ctypes.CDLL(library)
        pointer, parameters = ctypes.c_void_p, _Parameters
        for name, result, arguments in (
            ("llama_model_default_params", parameters, []),
            ("llama_context_default_params", parameters, []),
            ("llama_model_load_from_file", pointer, [ctypes.c_char_p, parameters]),
            ("llama_init_from_model", pointer, [pointer, parameters]),
            ("llama_model_get_vocab", pointer, [pointer]),
            ("llama_vocab_n_tokens", ctypes.c_int32, [pointer]),
            ("llama_set_n_threads", None, [pointer, ctypes.c_int32, ctypes.c_int32]),
            ("llama_batch_init", _Batch, [ctypes.c_int32] * 3),
            ("llama_get_memory", pointer, [pointer]),
            ("llama_memory_clear", None, [pointer, ctypes.c_bool]),
            ("llama_decode", ctypes.c_int32, [pointer, _Batch]),
            ("llama_get_logits", pointer, [pointer]),
        ):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        lib.llama_log_set(SILENT, None)
        lib.llama_backend_init()
        model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        settings = lib.llama_context_default_params()
        settings.words[:3] = [context] * 3
        self._context = lib.llama_init_from_model(model, settings)
        lib.llama_set_n_threads(self._context, threads, threads)
        self._batch = lib.llama_batch_init(context, 0, 1)
        self.vocab_size: int = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def logits(self, tokens: Sequence[int]) -> memoryview:
        """The float32 logits of all tokens, [tokens, vocab]."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)
        if code := self._lib.llama_decode(self._context, batch):
            raise SystemExit(f"llama_decode returned {code}")
        size = len(tokens) * self.vocab_size
        return memoryview((ctypes.c_float * size).from_address(self._lib.llama_get_logits(self._context))).cast("B")


def serve(library: str, path: str, context: int, threads: int) -> None:
    # Libraries may print to stdout, so logits go to a duplicate of it, and descriptor 1 becomes stderr.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    model = LlamaModel(library, path, context, threads)
    answers.write(model.vocab_size.to_bytes(8, "little"))
    answers.flush()
    for line in sys.stdin:
        answers.write(model.logits(json.loads(line)))
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
