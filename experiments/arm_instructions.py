"""Instruction counts of the innermost loops that multiply, from the disassembly of a library for 64-bit ARM.

cmake -S . -B build/aarch64 -G Ninja --toolchain native/toolchains/aarch64.cmake && cmake --build build/aarch64
python -m experiments.arm_instructions build/aarch64/native/libsurefoot_i8mm.so 'add_slice|sum_spans'
"""

import re
import subprocess
import sys
from collections.abc import Iterator

PRODUCTS = {"sdot", "udot", "usdot", "smmla", "usmmla"}
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
BRANCH = re.compile(r"^(?:b(?:\.\w+)?|cbn?z|tbn?z)$")
Code = list[tuple[int, str, str]]  # address, instruction, operands


def functions(library: str) -> Iterator[tuple[str, Code]]:
    command = ["aarch64-linux-gnu-objdump", "-d", "-C", "--no-show-raw-insn", library]
    name, code = "", Code()
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if start := FUNCTION.match(line):
            yield name, code
            name, code = start[1], []
        elif part := INSTRUCTION.match(line):
            code.append((int(part[1], 16), part[2], part[3]))
    yield name, code


def innermost_loops(code: Code) -> list[Code]:
    """From the target of each branch backwards to the branch, where no other such loop is within."""
    places = {address: place for place, (address, _, _) in enumerate(code)}
    loops = []
    for place, (_, instruction, operands) in enumerate(code):
        target = re.search(r"([0-9a-f]+) <", operands) if BRANCH.match(instruction) else None
        start = places.get(int(target[1], 16)) if target else None
        if start is not None and start <= place:
            loops.append((start, place))
    inner = [a for a in loops if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in loops)]
    return [code[start : end + 1] for start, end in inner]


def main(library: str, wanted: str) -> None:
    print("products  all  loads and stores  function")
    for name, code in functions(library):
        for loop in innermost_loops(code) if re.search(wanted, name) else []:
            products = sum(instruction in PRODUCTS for _, instruction, _ in loop)
            memory = sum(instruction.startswith(("ld", "st")) for _, instruction, _ in loop)
            if products:
                print(f"{products:8} {len(loop):4} {memory:17}  {name.partition('(')[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
