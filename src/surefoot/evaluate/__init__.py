"""How good a model's predictions are on a text, and how far they are from the model's own in float32.

Nothing below imports this package. See docs/design/evaluation.md for what is counted and why.
"""

from surefoot.evaluate.perplexity import Engine, Results, as_json, evaluate
from surefoot.evaluate.windows import TextError, cut_windows

__all__ = ["Engine", "Results", "TextError", "as_json", "cut_windows", "evaluate"]
