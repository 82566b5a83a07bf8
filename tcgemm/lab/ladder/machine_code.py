"""The machine code of the steps, read from libtcgemm_lab.so by cuobjdump. Nothing is compiled."""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tcgemm.emulate import lab_library
from tcgemm.lab.ladder import sources
from tcgemm.lab.ladder.hgemm_tile import TILES
from tcgemm.lab.probe import sass

TARGET = "sm_90"
SHOWN = ("HMMA", "DMMA", "FFMA", "LDSM", "LDS", "STS", "LDG", "LDGSTS", "BAR")
MULTIPLY = re.compile(r"(HMMA|DMMA|FFMA)\b")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?\w+ )?\s*([A-Z][\w.]*)\s*([^;]*);")
USAGE = re.compile(r"^ Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", re.M)
TYPES = {"f": "float", "j": "uint32", "6__half": "half"}

Usage = tuple[int, int, int]  # registers, bytes of local memory, bytes of static shared memory


class Line(NamedTuple):
    """An instruction: its address, whether it has a predicate, its opcode and operands."""

    address: int
    predicated: bool
    opcode: str
    operands: str


class Kernel(NamedTuple):
    """The machine code of a kernel.

    Attributes:
        name (str): of its function: "multiply_004_3_0".
        arguments (tuple): of its template: (3,), or ("half",).
        registers (int): of a thread.
        local_bytes (int): of a thread; what is spilled lies there.
        shared_bytes (int): static ones; dynamic ones are not known here.
        opcodes (Counter[str]): of all instructions: {"HMMA.16816.F32": 96}.
        loop (Counter[str]): of the main loop, once through: the outermost loop with the most
            multiplications, with the loops within it. Empty without a loop.
    """

    name: str
    arguments: tuple[int | str, ...]
    registers: int
    local_bytes: int
    shared_bytes: int
    opcodes: Counter[str]
    loop: Counter[str]

    @property
    def spills(self) -> int:
        """Instructions that load or store local memory."""
        return sum(count for name, count in self.opcodes.items() if re.match(r"(STL|LDL)\b", name))

    @property
    def counts(self) -> dict[str, int]:
        """The main loop by the kinds of SHOWN: {"HMMA": 32, "LDSM": 16}."""
        counts: Counter[str] = Counter()
        for opcode, count in self.loop.items():
            counts[opcode.split(".")[0]] += count
        return {kind: counts[kind] for kind in SHOWN if counts[kind]}


def of(step: str, target: str = TARGET) -> tuple[Kernel, ...] | None:
    """The kernels of a step, one for each list of template arguments.

    None: there is no cuobjdump, no library with CUDA kernels, or no code for the target.

    Arguments:
        step: "004_2_0".
        target: "sm_80" or "sm_90"; sm_90a counts as sm_90.

    Raises:
        ValueError: There is no such step.
    """
    kernels = _lines(step, target)
    if kernels is None:
        return None
    return tuple(_kernel(name, *facts) for name, facts in kernels.items())


def store_spacing(number: int, target: str = TARGET) -> dict[int, int] | None:
    """How many HMMA stand between consecutive STS.128 of a tile's main loop: {count: how often}.

    ptxas moves the stores together: the distance of the source occurs between no two of them, with
    nvcc 13.0 on sm_80 and sm_90. None: as of `of`.

    Arguments:
        number: parameter 0 of 000_hgemm.
        target: as of `of`.

    Raises:
        ValueError: There is no such tile.
    """
    if not 0 <= number < len(TILES):
        raise ValueError(f"number is {number}; 000_hgemm has the tiles 0 to {len(TILES) - 1}.")
    arguments = tuple(TILES[number])
    kernels = _lines("000_hgemm", target) or {}
    own = [lines for name, (_, lines) in kernels.items() if _arguments(name)[1] == arguments]
    if not own:
        return None
    body = main_loop(own[0])
    stores = [i for i, line in enumerate(body) if line.opcode == "STS.128"]
    counts = Counter(
        sum(line.opcode.startswith("HMMA") for line in body[first:last])
        for first, last in itertools.pairwise(stores)
    )
    return dict(sorted(counts.items()))


def main_loop(lines: list[Line]) -> list[Line]:
    """The instructions of the outermost loop with the most multiplications; [] without a loop."""
    places = {line.address: index for index, line in enumerate(lines)}
    best: list[Line] = []
    for index, line in enumerate(lines):
        goal = re.search(r"\b0x([0-9a-f]+)\s*$", line.operands)
        if not line.opcode.startswith("BRA") or goal is None:
            continue
        body = lines[places.get(int(goal[1], 16), index) : index + 1]
        # A jump back from behind the end of the kernel is no loop; one to itself fills the end.
        if len(body) < 2 or any(x.opcode == "EXIT" and not x.predicated for x in body):
            continue
        if (_work(body), len(body)) > (_work(best), len(best)):
            best = body
    return best


def _work(lines: list[Line]) -> int:
    return sum(bool(MULTIPLY.match(line.opcode)) for line in lines)


def _kernel(function: str, usage: Usage, lines: list[Line]) -> Kernel:
    name, arguments = _arguments(function)
    opcodes = Counter(line.opcode for line in lines)
    loop = Counter(line.opcode for line in main_loop(lines))
    return Kernel(name, arguments, *usage, opcodes, loop)


def _arguments(function: str) -> tuple[str, tuple[int | str, ...]]:
    """A mangled name -> (the function, its template arguments)."""
    length = re.match(r"_ZN6tcgemm6ladder(\d+)", function)
    if length is None:
        return function, ()
    end = length.end() + int(length[1])
    name, rest = function[length.end() : end], function[end:]
    listed = re.match(r"I(?:NS0_9HgemmTileI)?((?:L[ib]\d+E|6__half|[fj])+)E", rest)
    values = re.findall(r"L[ib](\d+)E|(6__half|[fj])", listed[1]) if listed else []
    return name, tuple(int(number) if number else TYPES[kind] for number, kind in values)


def _lines(step: str, target: str) -> dict[str, tuple[Usage, list[Line]]] | None:
    """{mangled name: what a kernel needs, and its instructions} of a step."""
    names = set(re.findall(r"\b(multiply_\w+)\(", sources.source(step)))
    arch, every = _usage(target)
    usage = {name: resources for name, resources in every.items() if _arguments(name)[0] in names}
    code = _code(arch, list(usage))
    if code is None:
        return None
    return {name: (resources, code[name]) for name, resources in usage.items()}


def _usage(target: str) -> tuple[str, dict[str, Usage]]:
    """(the target as the library names it, {mangled name: what a kernel needs})."""
    number, newest, usage = re.sub(r"\D", "", target), "", {}
    for part in re.split(r"^arch = ", _cuobjdump("-res-usage"), flags=re.MULTILINE)[1:]:
        arch = part.split(maxsplit=1)[0]
        if re.sub(r"\D", "", arch) == number:
            for name, registers, stack, shared, local in USAGE.findall(part):
                newest = arch
                usage[name] = (int(registers), int(stack) + int(local), int(shared))
    return newest, usage


def _code(arch: str, functions: list[str]) -> dict[str, list[Line]] | None:
    """{mangled name: instructions}; None without functions, or if one of them has no code."""
    if not functions:
        return None
    text, code = _cuobjdump("-sass", "-arch", arch, "-fun", ",".join(functions)), {}
    for part in re.split(r"^\s*Function : ", text, flags=re.MULTILINE)[1:]:
        code[part.split(maxsplit=1)[0]] = [
            Line(int(address, 16), bool(predicate), opcode, operands.strip())
            for address, predicate, opcode, operands in INSTRUCTION.findall(part)
        ]
    return code if all(code.get(function) for function in functions) else None


def _cuobjdump(*flags: str) -> str:
    """What cuobjdump says of the library; nothing if either of them is missing."""
    tool, library = sass.tool("cuobjdump"), lab_library.path()
    if tool is None or not library.is_file():
        return ""
    return _output(tool, flags, library, library.stat().st_mtime_ns)


@functools.cache
def _output(tool: str, flags: tuple[str, ...], library: Path, _changed: int) -> str:
    command = [tool, *flags, str(library)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return process.stdout if process.returncode == 0 else ""
