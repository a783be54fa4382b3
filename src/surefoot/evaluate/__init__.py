"""Evaluates models on a text: perplexity, and divergence from the same model in float32.

Nothing below imports this package. docs/design/evaluation.md says what is counted and why.
"""

from surefoot.evaluate.perplexity import LogitsEngine, as_json, evaluate
from surefoot.evaluate.windows import TextError, cut_windows

__all__ = ["LogitsEngine", "TextError", "as_json", "cut_windows", "evaluate"]
