"""The Python API: a model with its tokenizer and chat template, which generates text."""

from surefoot.api.answers import CompletionOutput, Logprob, Piece, RequestOutput
from surefoot.api.async_llm import AsyncLLM
from surefoot.api.llm import LLM
from surefoot.core import SamplingParams

__all__ = ["LLM", "AsyncLLM", "CompletionOutput", "Logprob", "Piece", "RequestOutput", "SamplingParams"]
