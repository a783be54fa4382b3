"""No function of the C library whose last bit may differ between machines stands where bits depend on it."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "surefoot"
ORACLE = Path(__file__).parents[1] / "oracle"
LAYERS = ("models", "weights", "formats", "ops", "runner", "sampling", "speculate", "cache", "engine", "text", "api")
INEXACT = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "power", "float_power", "cbrt", "hypot", "dist",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
    "erfc", "gamma", "lgamma", "arcsin", "arccos", "arctan", "arctan2", "arcsinh", "arccosh", "arctanh", "logaddexp",
    "sinc", "geomspace", "logspace",
))  # fmt: skip
# Places that no bit of an answer depends on, and why.
ALLOWED = {
    "models/hunyuan_v1_dense.py": {"**": 1},  # of Decimals, which are the same on every machine
}


def inexact(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Pow) and not _is_exact_power(node):
            yield "**"
        if isinstance(node, ast.Attribute) and node.attr in INEXACT and _is_library(node.value):
            yield node.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "pow":
            yield "pow"
        if isinstance(node, ast.ImportFrom) and node.module in ("math", "cmath", "numpy"):
            yield from (name.name for name in node.names if name.name in INEXACT)


def _is_library(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("math", "cmath", "np", "numpy")


def _is_exact_power(node: ast.BinOp | ast.AugAssign) -> bool:
    """Powers of two are exact, whatever the library."""
    base = node.left if isinstance(node, ast.BinOp) else node.target
    return isinstance(base, ast.Constant) and base.value in (2, 2.0)


def sources() -> list[Path]:
    return sorted(file for layer in LAYERS for file in (SOURCE / layer).rglob("*.py"))


def test_the_oracle_calls_no_library_function_either() -> None:
    assert not {file.name for file in ORACLE.glob("*.py") if [*inexact(ast.parse(file.read_text()))]}


def test_bits_depend_on_no_library_function() -> None:
    found = {
        str(file.relative_to(SOURCE)): dict(counted)
        for file in sources()
        if (counted := Counter(inexact(ast.parse(file.read_text()))))
    }
    assert found == ALLOWED, "use ops/elementary.py, x * x or Decimal; or say here why no bit depends on it"


@pytest.mark.parametrize(
    "code", ["x ** 2", "x **= 2", "pow(x, 2)", "math.exp(x)", "np.power(x, 2)", "from math import log", "np.tanh"]
)
def test_each_form_is_seen(code: str) -> None:
    assert [*inexact(ast.parse(code))]


def test_exact_operations_are_free() -> None:
    code = "2 ** bits; 2.0 ** -120; math.sqrt(x); np.rint(x); x * x; f(**words)"
    assert not [*inexact(ast.parse(code))]
