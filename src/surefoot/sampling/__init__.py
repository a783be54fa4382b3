"""The choice of tokens: one feature per file, over whole rows of logits where it can be."""

from surefoot.sampling.logprobs import TokenLogprobs
from surefoot.sampling.sampler import Draw, Drawn, Sampler
from surefoot.sampling.seen import SeenTokens

__all__ = ["Draw", "Drawn", "Sampler", "SeenTokens", "TokenLogprobs"]
