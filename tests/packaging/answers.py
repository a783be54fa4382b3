"""What a model answers on this machine, as one JSON object that holds every bit; test_arm.py compares machines.

    python answers.py MODEL FOLDER VARIANT [FOLDER_OF_ANOTHER_MACHINE]

Packed weights and the prompt cache go to FOLDER. With another machine's folder, both are read from a copy of that one
instead. Stands alone: the emulated system has no tests.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from surefoot import LLM, SamplingParams
from surefoot.weights import GgufFile
from surefoot.weights.packed_cache import PackedCache, cache_key

# More than a few blocks of 16 tokens, and more rows than the kernels for few rows take.
PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. " * 3
SAMPLED = SamplingParams(max_tokens=6, temperature=0.8, top_p=0.9, seed=7, logprobs=3, ignore_eos=True)
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, logprobs=3, ignore_eos=True)


def bits(logprobs: Any) -> list[list[tuple[int, str]]]:
    return [[(token, entry.logprob.hex()) for token, entry in sorted(each.items())] for each in logprobs]


def take_packed(model: Path, theirs: Path, ours: Path, variant: str | None) -> Path:
    """Another machine's packed weights, under the name that this machine looks for."""
    (file,) = theirs.glob("*.packed")
    ours.mkdir(mode=0o700)
    key = cache_key(model, "w8", GgufFile(model).packing(variant))
    return Path(shutil.copy(file, ours / f"{key}.packed"))


def answers(model: Path, folder: Path, variant: str, other: Path | None) -> dict[str, Any]:
    packed, prompts = folder / "packed", folder / "prompts"
    folder.mkdir(mode=0o700)
    inode, chosen = None, None if variant == "best" else variant
    if other is not None:
        inode = take_packed(model, other / "packed", packed, chosen).stat().st_ino
        shutil.copytree(other / "prompts", prompts)
    llm = LLM(model, variant=chosen, max_context=512, packed_cache=PackedCache(packed), prompt_cache=prompts)
    outputs = llm.generate([PROMPT, PROMPT + "One day"], [GREEDY, SAMPLED], use_tqdm=False)
    llm.close()
    (file,) = packed.glob("*.packed")
    return {
        "answers": [[list(answer.token_ids), bits(answer.logprobs)] for output in outputs for answer in output.outputs],
        "packed": hashlib.sha256(file.read_bytes()).hexdigest(),
        "packed_was_read": file.stat().st_ino == inode,  # else it has been written anew
        "num_cached": outputs[0].usage.num_cached,
        "variant": llm.backend.variant,
    }


if __name__ == "__main__":
    model, folder, variant, *others = sys.argv[1:]
    print(json.dumps(answers(Path(model), Path(folder), variant, Path(others[0]) if others else None)))
