"""The predictions for two sockets are the code's."""

from tests.docs.pages import script

nodes = script("nodes")


def test_the_page_has_the_tables_of_the_code() -> None:
    text = nodes.PAGE.read_text()
    assert nodes.fill(text) == text, "run python docs/make/nodes.py"


def test_every_case_has_both_ways() -> None:
    lines = [line for line in nodes.tables().splitlines() if line.startswith("| 2x-")]
    assert len(lines) == 2 * len(nodes.MACHINES) * len(nodes.MODELS) * len(nodes.NUM_USERS)
    assert sum("**" in line for line in lines) == len(lines) / 2
