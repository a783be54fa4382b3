from dataclasses import dataclass

from typer import Typer
from typer.testing import CliRunner

from surefoot.cli.one_user import with_groups


@dataclass(frozen=True)
class Shared:
    depth: int = 3
    name: str = "none"


def test_fields_of_a_group_are_options() -> None:
    seen: list[object] = []

    @with_groups
    def command(path: str, shared: Shared, last: bool = False) -> None:
        """What it does."""
        seen.append((path, shared, last))

    app = Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["a", "--depth", "4", "--last"])
    assert result.exit_code == 0, result.output
    command(path="b", name="given")
    assert seen == [("a", Shared(4, "none"), True), ("b", Shared(3, "given"), False)]
    assert "What it does." in CliRunner().invoke(app, ["--help"]).output
