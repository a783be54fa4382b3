"""The results as tables for a terminal."""

from surefoot.bench.report.engine import show_engine
from surefoot.bench.report.model import show_model
from surefoot.bench.report.ops import show
from surefoot.bench.report.serve import show_serve
from surefoot.bench.report.speculate import show_speculate

__all__ = ["show", "show_engine", "show_model", "show_serve", "show_speculate"]
