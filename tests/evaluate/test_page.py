"""What a person sees of a comparison."""

import io

from rich.console import Console

from surefoot.evaluate.compare import Compared, Comparison
from surefoot.evaluate.page import table
from surefoot.evaluate.scores import Fidelity, Score


def compared(name: str, fidelity: Fidelity | None) -> Compared:
    return Compared(name, 35_604_000_000, Score(113.2147, 0.5, 2048, fidelity), {}, {}, 128.0, [], 123.4)


def test_numbers_stay_whole_on_a_terminal_of_80_columns() -> None:
    lost = Fidelity(0.039861, 0.296031, 12.73864, 0.1006, 2048)
    models = [compared("a.gguf", None), compared("2: a-long-name-of-a-model-in-4-bits.gguf", lost)]
    console = Console(file=io.StringIO(), width=80)
    console.print(table(Comparison(4, 2048, 4, models)))
    shown = console.file.getvalue().splitlines()
    whole = ["35604.0", "MB", "113.2147", "0.03986", "0.2960", "12.739", "10.06%", "128.0", "123.4"]
    assert any(line.split()[-len(whole) :] == whole for line in shown), shown
    assert models[1].name.replace(" ", "") in "".join(line.split()[0] for line in shown if line.strip())
