"""Where the pages of a model's weights lie on this machine, and what it answers, as one JSON object.

    python placed.py MODEL FOLDER

Stands alone: test_nodes.py also runs it in an emulated machine of two NUMA nodes, as root.
"""

import ctypes
import gc
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot import LLM, SamplingParams
from surefoot.machine import choose_placement
from surefoot.ops import Backend, PackedWeights
from surefoot.weights.packed_cache import PackedCache

PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play"
GREEDY = SamplingParams(max_tokens=3, temperature=0.0, logprobs=3, ignore_eos=True)
MOVE_PAGES = 279  # of x86-64; without a list of nodes it only tells where pages are
PAGE = os.sysconf("SC_PAGE_SIZE")
CPUSET = Path("/sys/fs/cgroup/one")


def nodes_of(first: int, last: int) -> list[int]:
    """The node of every page between two addresses; negative: there is none."""
    count = (last - first) // PAGE
    pages = (ctypes.c_void_p * count)(*range(first, last, PAGE))
    nodes = (ctypes.c_int * count)()
    if ctypes.CDLL(None, use_errno=True).syscall(MOVE_PAGES, 0, ctypes.c_ulong(count), pages, None, nodes, 0):
        raise OSError(ctypes.get_errno(), "move_pages")
    return list(nodes)


def page_at(address: int) -> int:
    """The page that begins nearest."""
    return (address + PAGE // 2) // PAGE * PAGE


def count_pages(matrices: Sequence[PackedWeights], ends: Callable[[PackedWeights], list[int]]) -> list[dict[int, int]]:
    """For each node's part of all matrices: pages by the node that they lie on."""
    counts: list[Counter[int]] = []
    for matrix in matrices:
        start, first = matrix.data.ctypes.data, 0
        parts = ends(matrix)
        counts += [Counter() for _ in parts[len(counts) :]]
        for count, end in zip(counts, parts, strict=True):
            count.update(nodes_of(page_at(start + first), page_at(start + end)))
            first = max(first, end)
    return [dict(sorted(count.items())) for count in counts]


def threads_by_cpus() -> dict[str, int]:
    statuses = [(task / "status").read_text() for task in Path("/proc/self/task").iterdir()]
    return dict(Counter(status.split("Cpus_allowed_list:")[1].split()[0] for status in statuses))


def huge_kib() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("AnonHugePages")))


def bits(logprobs: Any) -> list[list[tuple[int, str]]]:
    return [[(token, entry.logprob.hex()) for token, entry in sorted(at.items())] for at in logprobs]


def load(model: Path, folder: Path) -> dict[str, Any]:
    """What a load on the processors and memory of now gives. Weights of the loads before are gone."""
    before = len(list(folder.glob("*.packed")))
    llm = LLM(model, threads=4, max_context=512, packed_cache=PackedCache(folder))
    (output,) = llm.generate([PROMPT], GREEDY, use_tqdm=False)
    (answer,) = output.outputs
    every = [each for each in gc.get_objects() if isinstance(each, PackedWeights)]
    matrices = [each for each in every if each.data.strides == (1,)]  # without outlines, which are one byte
    placement = llm.backend.placement
    whole = not placement.shares
    facts = {
        "tokens": list(answer.token_ids),
        "logprobs": bits(answer.logprobs),
        "variant": llm.backend.variant,
        "placement": asdict(placement),
        "error": os.strerror(llm.backend.pages.error),
        "from_cache": before == 1,
        "pages": count_pages(matrices, lambda w: [w.nbytes] if whole else llm.backend.node_ends(w.n, w.nbytes)),
        "huge_kib": huge_kib(),
        "threads": threads_by_cpus(),
    }
    llm.close()
    return facts


def unplaced(model: Path) -> list[dict[int, int]]:
    """The same count where nothing was asked of the system."""
    from surefoot.weights import GgufFile  # noqa: PLC0415

    split, plain = Backend(threads=4), Backend(threads=1)
    file = GgufFile(model)
    names = [name for name, info in file.tensors.items() if name.endswith("ffn_down.weight") and len(info.shape) == 2]
    matrices = [matrix for name in names for matrix in file.fused(plain, [name])]
    return count_pages(matrices, lambda w: split.node_ends(w.n, w.nbytes))


def loads(model: Path, folder: Path) -> dict[str, Any]:
    facts = {"packed": load(model, folder)}
    gc.collect()
    facts["cached"] = load(model, folder)
    gc.collect()
    if not choose_placement(4).shares:
        return facts
    facts["unplaced"] = {"pages": unplaced(model)}
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0, 1})
    facts["affinity"] = load(model, folder)
    gc.collect()
    os.sched_setaffinity(0, everything)
    CPUSET.mkdir()
    (CPUSET / "cpuset.cpus").write_text("2-3")
    (CPUSET / "cpuset.mems").write_text("1")
    (CPUSET / "cgroup.procs").write_text(str(os.getpid()))
    facts["cpuset"] = load(model, folder)
    return facts


if __name__ == "__main__":
    model, folder = map(Path, sys.argv[1:])
    folder.mkdir(mode=0o700)
    print(json.dumps(loads(model, folder)))
