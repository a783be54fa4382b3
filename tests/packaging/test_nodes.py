"""Two NUMA nodes, emulated (nightly): the same bits as here, and pages on the node whose threads read them.

The emulated machine runs Debian's kernel with this interpreter and these sources in memory. It shows where pages lie,
not how fast they are read."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.conftest import ROOT, run
from tests.smollm2 import find_file

TOOLS = ("qemu-system-x86_64", "busybox", "cpio")
MACHINE = (
    "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "4,sockets=2,cores=2", "-m", "3G",
    "-object", "memory-backend-ram,id=a,size=1536M", "-object", "memory-backend-ram,id=b,size=1536M",
    "-numa", "node,nodeid=0,cpus=0-1,memdev=a", "-numa", "node,nodeid=1,cpus=2-3,memdev=b",
    "-numa", "dist,src=0,dst=1,val=21", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
)  # fmt: skip
SCRIPT = Path(__file__).parent / "placed.py"
# Packages that loading and answering import, as installed.
PACKAGES = """import json, sys, runpy
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
files = [module.__file__ for module in sys.modules.values() if getattr(module, "__file__", None)]
maps = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps([sorted(files), sorted(maps)]))
"""
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
echo 0 > /proc/sys/kernel/numa_balancing
mkdir -p /tmp
export PYTHONPATH={path} HOME=/tmp
echo BEGIN
{python} /placed.py /model.gguf /tmp/packed 2>&1
echo END
poweroff -f
"""
START_S = 3600.0
pytestmark = [pytest.mark.nightly, pytest.mark.slow]


def find_kernel() -> Path:
    if given := os.environ.get("SUREFOOT_NODES_KERNEL"):
        return Path(given)
    kernels = sorted(Path("/boot").glob("vmlinuz-*"))
    if not kernels:
        pytest.skip("no kernel in /boot: install linux-image-amd64, or name one by SUREFOOT_NODES_KERNEL")
    return kernels[-1]


def copy_into(root: Path, source: Path) -> None:
    target = root / str(source).lstrip("/")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("test", "tests", "*.a"))
    else:
        shutil.copy(source, target)


def copy_library(root: Path, library: Path) -> None:
    """With the links to it: programs ask for libffi.so.8, which is libffi.so.8.1.2."""
    copy_into(root, library)
    for link in library.parent.glob(f"{library.name.split('.so')[0]}.so*"):
        if link.is_symlink() and link.resolve() == library:
            copy_into(root, link)


def top_level(file: Path, folder: Path) -> Path:
    """The package or module of a folder of packages that the file belongs to."""
    return folder / file.relative_to(folder).parts[0]


def make_root(root: Path, model: Path, files: list[str], libraries: list[str]) -> None:
    """A system that runs the script: this interpreter, the packages that it imported, the model."""
    packages = Path(sysconfig.get_path("purelib"))
    wanted = {top_level(Path(file), packages) for file in (*files, *libraries) if Path(file).is_relative_to(packages)}
    wanted |= {Path(f"{package}.libs") for package in wanted if Path(f"{package}.libs").is_dir()}
    wanted |= set(packages.glob("*.dist-info"))  # which some ask for their version
    standard = Path(sysconfig.get_path("stdlib"))
    for source in (*wanted, ROOT / "src"):
        copy_into(root, source)
    for library in libraries:
        copy_library(root, Path(library))
    shutil.copytree(
        standard,
        root / str(standard).lstrip("/"),
        ignore=shutil.ignore_patterns("site-packages", "test", "idlelib", "ensurepip", "config-*"),
        dirs_exist_ok=True,
    )
    python = Path(sys.executable).resolve()
    copy_into(root, python)
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    (root / "lib64").mkdir(exist_ok=True)
    shutil.copy(loader.resolve(), root / str(loader).lstrip("/"))
    for name in ("bin", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir(exist_ok=True)
    shutil.copy(shutil.which("busybox") or "", root / "bin" / "busybox")
    shutil.copy(model, root / "model.gguf")
    shutil.copy(SCRIPT, root / "placed.py")
    init = root / "init"
    init.write_text(INIT.format(path=f"{ROOT / 'src'}:{packages}", python=python))
    init.chmod(0o755)


def emulate(root: Path, image: Path) -> dict[str, Any]:
    with image.open("wb") as file:
        names = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=root, input=names, stdout=file, check=True)
    append = "console=ttyS0 panic=-1 quiet"
    words = ("qemu-system-x86_64", *MACHINE, "-kernel", find_kernel(), "-initrd", image, "-append", append)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=START_S)
    assert "END" in done.stdout, done.stdout[-4000:] + done.stderr[-4000:]
    said = done.stdout.split("BEGIN", 1)[1]
    lines = [line for line in said.splitlines() if line.startswith("{")]
    assert lines, said[-4000:]
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the script says here, and in the emulated machine."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.uname().machine != "x86_64":
        pytest.skip("the emulated machine takes this one's interpreter, which must be of x86-64")
    find_kernel()
    folder, model = tmp_path_factory.mktemp("nodes"), find_file()
    lines = run(sys.executable, "-c", PACKAGES, SCRIPT, model, folder / "packed").splitlines()
    here, (files, libraries) = json.loads(lines[-2]), json.loads(lines[-1])
    make_root(folder / "root", model, files, libraries)
    there = emulate(folder / "root", folder / "image")
    print(json.dumps({name: {**facts, "logprobs": None} for name, facts in there.items()}))
    shutil.rmtree(folder)
    return here, there


def local(pages: list[dict[str, int]]) -> float:
    """The part of the pages that lie on the node whose threads read them."""
    return sum(counts.get(str(node), 0) for node, counts in enumerate(pages)) / sum(
        count for counts in pages for count in counts.values()
    )


def test_the_same_bits_on_two_nodes(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    here, there = both
    for name in ("packed", "cached", "affinity", "cpuset"):
        assert there[name]["tokens"] == here["packed"]["tokens"]
        assert there[name]["logprobs"] == here["packed"]["logprobs"]


@pytest.mark.parametrize("name", ["packed", "cached"])
def test_pages_lie_where_they_are_read(both: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    facts = both[1][name]
    assert facts["from_cache"] == (name == "cached")
    assert [share["threads"] for share in facts["placement"]["shares"]] == [2, 2]
    assert local(facts["pages"]) >= 0.99
    assert local(both[1]["unplaced"]["pages"]) < 0.9  # so the count can tell
    assert facts["threads"]["0-1"] == 1
    assert facts["threads"]["2-3"] == 2


def test_an_affinity_of_one_node(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    facts = both[1]["affinity"]
    assert facts["placement"]["shares"] == []
    assert "2-3" not in facts["threads"]
    assert local(facts["pages"]) >= 0.99


def test_a_cpuset_of_one_node(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    facts = both[1]["cpuset"]
    assert facts["placement"]["shares"] == []
    assert facts["threads"].keys() == {"2-3"}
    (counts,) = facts["pages"]
    assert counts.keys() == {"1"}
