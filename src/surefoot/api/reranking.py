"""Scores documents for a query: the probability that the model answers yes.

A chat model's prompt asks whether the document meets the query. The last token's hidden state times the difference of
two rows of a matrix is the log-odds of yes against no. The rows are a classifier in the model's file, or the head's
rows of both words. An encoder reads the query and the document as a pair of texts, and its classifier gives the
log-odds.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from surefoot.api.answers import Ranked
from surefoot.api.loading import Loaded
from surefoot.api.opening import OpenModel
from surefoot.core import Pooling
from surefoot.models.load import CLASSIFIER
from surefoot.ops.arrays import F32
from surefoot.text import Tokenizer
from surefoot.weights import Checkpoint

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# Qwen3-Reranker's.
TEMPLATE = """<|im_start|>system
Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer \
can only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: {instruction}
<Query>: {query}
<Document>: {document}<|im_end|>
<|im_start|>assistant
<think>

</think>

"""
PLACES = re.compile(r"\{(instruction|query|document)\}")
FIRST = "<|im_start|>"  # a token of the template
LABELS = ("yes", "no")
ROBERTA_FIRST = "<s>"  # RoBERTa's first token: its pairs have two ends between the texts
F64 = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Reranker:
    """A prompt for a query and a document, and the score that its pooled hidden state has."""

    weights: F64  # [width]: the row of yes minus the row of no
    bias: float  # of the log-odds
    template: str  # with places for instruction, query and document
    pooling: Pooling = Pooling.LAST  # the state that is scored
    separator: int = -1  # the token after which the second of two texts begins
    second_text: int = 0  # what is added to that text's ids; 0: the model does not tell the texts apart

    @property
    def takes_instruction(self) -> bool:
        return "{instruction}" in self.template

    def prompt(self, tokenizer: Tokenizer, query: str, document: str, instruction: str | None = None) -> str:
        """The prompt, for `Tokenizer.encode_rendered`. Control tokens in the texts are shielded."""
        texts = {"query": query, "document": document, "instruction": instruction or INSTRUCTION}
        shielded = tokenizer.shield(texts)
        return PLACES.sub(lambda place: str(shielded[place[1]]), self.template)

    def tokens(self, ids: Sequence[int]) -> list[int]:
        """A prompt's ids for the model, from those of its text."""
        if not self.second_text:
            return list(ids)
        start = ids.index(self.separator) + 1
        return [*ids[:start], *(token + self.second_text for token in ids[start:])]

    def score(self, state: Sequence[float]) -> float:
        """The probability of yes. The sum is rounded once, and exp is Decimal's: the same bits on every machine."""
        odds = math.fsum((np.asarray(state, np.float64) * self.weights).tolist()) + self.bias
        return float(1 / (1 + (-Decimal(odds)).exp()))


def needed_reranker(reranker: Reranker | None) -> Reranker:
    """The reranker. Raises ValueError if the model is none."""
    if reranker is None:
        raise ValueError(
            "this model is no reranker: take one, such as Qwen3-Reranker, or choose the pooling rank when the model is "
            "loaded (--pooling rank), which asks a chat model for yes or no"
        )
    return reranker


def ranked(scores: Sequence[float]) -> list[Ranked]:
    """Highest first; equal ones in order."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return [Ranked(index, scores[index]) for index in order]


def find_reranker(opened: OpenModel, loaded: Loaded) -> Reranker:
    template, checkpoint, config = _template(loaded), opened.checkpoint, loaded.model.config
    if f"{CLASSIFIER}.weight" in checkpoint.tensors:
        rows, biases = _classifier(checkpoint)
    else:
        rows, biases = (
            _head_rows(loaded, _chosen_answers(opened) or _answers(loaded.tokenizer)),
            np.zeros(2, np.float32),
        )
    assert opened.pooling is not None
    separator = loaded.tokenizer.ids.after[-1] if config.takes_two_texts else -1
    second_text = config.vocab_size if config.takes_two_texts else 0
    return Reranker(_odds(rows), float(_odds(biases)), template, opened.pooling.pooling, separator, second_text)


def _odds(values: F32) -> F64:
    """The first minus the second, if there is one, in float64."""
    first, *second = values.astype(np.float64)
    return np.asarray(first - second[0] if second else first)


def _chosen_answers(opened: OpenModel) -> tuple[int, int] | None:
    return opened.pooling.answers if opened.pooling is not None else None


def _template(loaded: Loaded) -> str:
    """The file's own, else a pair of texts for an encoder, else Qwen3-Reranker's, if the model has its tokens. A file's
    template with the usual instruction has a place for another."""
    own = loaded.template.templates.get("rerank")
    if own is not None:
        return own.replace(INSTRUCTION, "{instruction}")
    if loaded.model.config.sees_ahead:
        return _pair(loaded.tokenizer)
    special = {loaded.tokenizer.token_bytes(token) for token in loaded.tokenizer.special}
    if FIRST.encode() not in special:
        raise ValueError(f"this model cannot rerank: it has no template for it, and no token {FIRST} for the usual one")
    return TEMPLATE


def _pair(tokenizer: Tokenizer) -> str:
    """Query and document as encoders were trained on pairs."""
    first, end = ("".join(map(tokenizer.text_of, ids)) for ids in (tokenizer.ids.before, tokenizer.ids.after))
    between = 2 * end if first == ROBERTA_FIRST else end
    return f"{first}{{query}}{between}{{document}}{end}"


def _classifier(checkpoint: Checkpoint) -> tuple[F32, F32]:
    """Rows and biases: one row for the log-odds, or one for yes and one for no."""
    rows, labels = checkpoint.floats(f"{CLASSIFIER}.weight"), _labels(checkpoint.metadata)
    rows = rows.reshape(-1, rows.shape[-1])
    if len(rows) > 2 or (len(rows) == 2 and sorted(labels) != sorted(LABELS)):
        raise ValueError(
            f"the classifier has the labels {', '.join(labels) or len(rows)}: only yes and no are supported"
        )
    name = f"{CLASSIFIER}.bias"
    biases = checkpoint.floats(name) if name in checkpoint.tensors else np.zeros(len(rows), np.float32)
    order = [labels.index(label) for label in LABELS] if len(rows) == 2 else [0]
    return rows[order], biases[order]


def _labels(metadata: Mapping[str, Any]) -> list[str]:
    key = f"{metadata.get('general.architecture', '')}.classifier.output_labels"
    return [str(label) for label in metadata.get(key, ())]


def _head_rows(loaded: Loaded, answers: tuple[int, int]) -> F32:
    if loaded.model.config.logit_softcap:
        raise ValueError(f"{loaded.model.config.family} models cap their logits, so that they cannot rerank")
    rows = loaded.model.head.rows(loaded.backend, np.array(answers, np.int64))
    return rows * np.float32(loaded.model.config.logit_scale)


def _answers(tokenizer: Tokenizer) -> tuple[int, int]:
    ids = [tokenizer.encode(label, add_special=False) for label in LABELS]
    if any(len(own) != 1 for own in ids):
        raise ValueError("this model cannot rerank: yes and no are not one token each")
    return ids[0][0], ids[1][0]
