"""`./dev`: its list names what it does, and every folder that it names is there."""

import re
import subprocess

from tests.docs.pages import ROOT

SCRIPT = (ROOT / "dev").read_text()


def test_the_list_names_every_command() -> None:
    listed = subprocess.run([ROOT / "dev"], capture_output=True, text=True, check=True).stdout
    named = re.findall(r"^  (\w+)", listed, re.MULTILINE)
    (cases,) = re.findall(r"^([\w |]+)\) \"\$@\"", SCRIPT, re.MULTILINE)
    assert named == cases.split(" | ")
    assert all(f"\n{name}()" in SCRIPT for name in named)


def test_the_folders_of_fast_tests_exist() -> None:
    (folders,) = re.findall(r'^FAST="(.*)"', SCRIPT, re.MULTILINE)
    assert [folder for folder in folders.split() if not (ROOT / folder).is_dir()] == []


def test_the_first_change_names_rooms_that_exist() -> None:
    """The table of CONTRIBUTING.md: every file, folder and test."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page[page.index("## A first change") : page.index("## Tests")]
    rooms = re.findall(r"^\| \d \| (.*?) \|", table, re.MULTILINE)
    named = [name for room in rooms for name in re.findall(r"`([\w/.]+)`", room)]
    found = [name for name in named if (ROOT / name).exists() or (ROOT / "src/surefoot" / name).exists()]
    tests = re.findall(r"`\./dev test (\S+)`", table)
    assert named == found
    assert len(rooms) == len(tests) == 8
    assert [test for test in tests if not (ROOT / test).exists()] == []
