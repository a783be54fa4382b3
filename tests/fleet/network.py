"""Machines of a fleet as network namespaces on one bridge, each with a link that a test can cut.

Needs root and iproute2. This process is on the bridge too, as the first address of the subnet.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

CLONE_NEWNET = 0x40000000
NETWORK = "198.18"  # set aside for measurements of networks: no machine of the tester's has such an address


class NoNamespaces(Exception):
    """This machine lets a test make no network; the message says why."""


@dataclass(frozen=True)
class Machine:
    """A network namespace, and the address of whatever runs in it."""

    name: str
    address: str

    def enter(self) -> None:
        """Move the calling process there."""
        with open(f"/run/netns/{self.name}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def cut(self) -> None:
        """What is sent to it or by it is lost from now on; nobody is told."""
        _ip("-netns", self.name, "link", "set", "eth0", "down")

    def mend(self) -> None:
        _ip("-netns", self.name, "link", "set", "eth0", "up")


@contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """They reach each other, and this process. Raises NoNamespaces."""
    if os.geteuid() != 0:
        raise NoNamespaces("network namespaces need root")
    if shutil.which("ip") is None:
        raise NoNamespaces("iproute2 is not installed")
    with ExitStack() as stack:
        bridge = stack.enter_context(_bridge())
        yield [stack.enter_context(_machine(number, bridge)) for number in range(count)]


def own_address() -> str:
    """Of this process, as machines see it."""
    return _address(1)


def _address(host: int) -> str:
    return f"{NETWORK}.{os.getpid() % 256}.{host}"


@contextmanager
def _bridge() -> Iterator[str]:
    name = f"sfb{os.getpid()}"
    try:
        _ip("link", "add", name, "type", "bridge")
    except OSError as error:
        raise NoNamespaces(f"no bridge can be made: {error}") from error
    try:
        _ip("address", "add", f"{own_address()}/24", "dev", name)
        _ip("link", "set", name, "up")
        yield name
    finally:
        _ip("link", "delete", name)


@contextmanager
def _machine(number: int, bridge: str) -> Iterator[Machine]:
    name, link, address = f"surefoot-{os.getpid()}-{number}", f"sf{os.getpid()}-{number}", _address(number + 2)
    try:
        _ip("netns", "add", name)
    except OSError as error:
        raise NoNamespaces(f"no network namespace can be made: {error}") from error
    try:
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", bridge, "up")
        _ip("-netns", name, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-netns", name, "link", "set", device, "up")
        yield Machine(name, address)
    finally:
        _ip("netns", "delete", name)  # and its link with it


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
