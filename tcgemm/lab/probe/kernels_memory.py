"""PTX text of the loops that read and write shared memory, of ldmatrix, and of the bandwidth.

The loads of a chain read their next address: shared memory has it where a lane loads its first
register. The addresses come in the buffer of operands, so that one kernel serves every layout:

    8 x 32 words   the offset of each slot's lanes
    WORDS words    the contents of shared memory
    WORDS words    how often its address is added to a word: 0, 1 or 2^16
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tcgemm import _driver
from tcgemm.lab.probe.kernels_mma import loop, prologue, stop

WORDS = 4096  # of shared memory
SLOTS = 8
CONTENTS = SLOTS * 32 * 4  # bytes before the contents


class Access(NamedTuple):
    """An access to shared memory by a warp."""

    ptx: str  # the instruction
    registers: int
    lanes: int  # that supply addresses
    width: int  # bytes from an address on
    sass: str  # the opcode

    @property
    def bytes(self) -> int:
        """That the warp loads or stores."""
        return 128 * self.registers

    @property
    def is_store(self) -> bool:
        return self.ptx.startswith("st")


def _ldmatrix(number: int, trans: str = "") -> Access:
    form = f"ldmatrix.sync.aligned.m8n8.x{number}{trans}.shared.b16"
    return Access(form, number, 8 * number, 16, "LDSM")


ACCESSES = {
    **{f"ldmatrix.x{number}": _ldmatrix(number) for number in (1, 2, 4)},
    **{f"ldmatrix.x{number}.trans": _ldmatrix(number, ".trans") for number in (1, 2, 4)},
    "ld.shared.u32": Access("ld.shared.b32", 1, 32, 4, "LDS"),
    "ld.shared.u64": Access("ld.shared.v2.b32", 2, 32, 8, "LDS"),
    "ld.shared.u128": Access("ld.shared.v4.b32", 4, 32, 16, "LDS"),
    "st.shared.u32": Access("st.volatile.shared.b32", 1, 32, 4, "STS"),
    "st.shared.u64": Access("st.volatile.shared.v2.b32", 2, 32, 8, "STS"),
    "st.shared.u128": Access("st.volatile.shared.v4.b32", 4, 32, 16, "STS"),
}


def shared_entry(name: str, ilp: int) -> str:
    """A loop whose body has `ilp` accesses, each in a chain of its own."""
    access = ACCESSES[name]
    count = access.registers
    lines = [
        *prologue(entry_name(name, ilp)),
        f".reg .b32 %d<{SLOTS * 4}>, %r<{SLOTS}>, %to, %word, %often, %base, %lane;",
        ".reg .b64 %at;",
        ".reg .pred %copying;",
        "mov.u32 %base, tile;",
        "ld.param.u64 %at, [data];",
        "mov.u32 %i, %t;",
        "copy:",
        '.pragma "nounroll";',
        "mul.wide.u32 %q, %i, 4;",
        "add.u64 %p, %at, %q;",
        f"ld.global.b32 %word, [%p + {CONTENTS}];",
        f"ld.global.b32 %often, [%p + {CONTENTS + 4 * WORDS}];",
        "mad.lo.u32 %word, %often, %base, %word;",
        "shl.b32 %to, %i, 2;",
        "add.u32 %to, %to, %base;",
        "st.shared.b32 [%to], %word;",
        "mov.u32 %word, %ntid.x;",
        "add.u32 %i, %i, %word;",
        f"setp.lt.u32 %copying, %i, {WORDS};",
        "@%copying bra copy;",
        "and.b32 %lane, %t, 31;",
        "mul.wide.u32 %q, %lane, 4;",
        "add.u64 %p, %at, %q;",
    ]
    if access.is_store:
        lines.append("ld.global.v4.b32 {%d0, %d1, %d2, %d3}, [%at];")
    for slot in range(ilp):
        lines.append(f"ld.global.b32 %r{slot}, [%p + {slot * 128}];")
        lines.append(f"add.u32 %r{slot}, %r{slot}, %base;")
    body = []
    for slot in range(ilp):
        if access.is_store:
            values = ", ".join(f"%d{i}" for i in range(count))
            body.append(f"{access.ptx} [%r{slot}], {_braces(values, count > 1)};")
        else:
            later = (f"%d{slot * 4 + i}" for i in range(1, count))
            values = ", ".join([f"%r{slot}", *later])
            braces = count > 1 or name.startswith("ldmatrix")
            body.append(f"{access.ptx} {_braces(values, braces)}, [%r{slot}];")
    lines += [*loop(entry_name(name, ilp), [*body, "bar.warp.sync 0xffffffff;"]), *stop()]
    lines += [f"st.global.b32 [%p + {slot * 8192}], %r{slot};" for slot in range(ilp)]
    if not access.is_store:  # a load of which one register is used would become narrower
        registers = [slot * 4 + i for slot in range(ilp) for i in range(1, count)]
        lines += [f"st.global.b32 [%p + {(SLOTS + i) * 8192}], %d{i};" for i in registers]
    return "\n".join([*lines, "ret;", "}", ""])


def _braces(values: str, condition: bool) -> str:
    return f"{{{values}}}" if condition else values


def entry_name(name: str, ilp: int) -> str:
    """ "ldmatrix_x1_4"."""
    return f"{name.replace('.', '_')}_{ilp}"


def shared_module(
    target: str,
    names: Iterable[str] = ACCESSES,
    ilps: tuple[int, ...] = tuple(range(1, SLOTS + 1)),
) -> str:
    """A module with a kernel for each of these accesses and ILPs."""
    head = _driver.head(target) + f".shared .align 1024 .b8 tile[{4 * WORDS}];\n"
    return head + "\n".join(shared_entry(name, ilp) for name in names for ilp in ilps)


# Cycles of one instruction (CPI).

WIDTHS = (32, 64, 128)
SPACES = {
    "LDG L1": "ld.global",
    "LDG L2": "ld.global.cg",
    "LDS": "ld.shared",
    "STS": "st.volatile.shared",
}
UNROLLED = 128
CPI_SHARED = 32768  # bytes; no two loads have one address
LOADED_REGISTERS = 192  # of a thread: so many loads of 8 and 16 bytes are in flight at most


def number(space: str, width: int) -> int:
    """The instructions between two reads of the clock: 128, or what the registers allow."""
    return UNROLLED if space == "STS" else min(UNROLLED, LOADED_REGISTERS * 32 // width)


def cpi_name(space: str, width: int, count: int) -> str:
    """ "cpi_LDG_L1_32_128"."""
    return f"cpi_{space.replace(' ', '_')}_{width}_{count}"


def cpi_entry(space: str, width: int, count: int) -> str:
    """Independent accesses between two reads of the clock, and a third after all have arrived.

    The clocks of the last body are kept, when caches have the data. A zero is added to the address
    in each body, so that the loads stay in it.
    """
    name, words = cpi_name(space, width, count), width // 32
    is_global, is_store = space.startswith("LDG"), space == "STS"
    form = {1: "b32", 2: "v2.b32", 4: "v4.b32"}[words]
    lines = [
        *prologue(name),
        f".reg .b32 %d<{max(4, count * words)}>, %from, %x;",
        ".reg .b64 %at, %t2;",
        ".reg .pred %rare;",
        "mov.u32 %from, tile;",
        f"mad.lo.u32 %from, %t, {width // 8}, %from;",
        "ld.param.u64 %at, [data];",
        f"mul.wide.u32 %q, %t, {width // 8};",
        "add.u64 %at, %at, %q;",
        "ld.param.u64 %p, [data];",
        *["ld.global.v4.b32 {%d0, %d1, %d2, %d3}, [%p];"] * is_store,
        "cvt.u64.u32 %q, %z;",
        "mov.u32 %i, 0;",
        f"loop_{name}:",
        '.pragma "nounroll";',
        "add.u32 %from, %from, %z;",
        "add.u64 %at, %at, %q;",
        "bar.sync 0;",
        "mov.u64 %t0, %clock64;",
    ]
    span = 4 * width  # bytes of a warp
    for index in range(count):
        place = index * span if is_global else index * span % CPI_SHARED
        first = 0 if is_store else index * words
        values = _braces(", ".join(f"%d{first + i}" for i in range(words)), words > 1)
        address = f"[%{'at' if is_global else 'from'} + {place}]"
        operands = f"{address}, {values}" if is_store else f"{values}, {address}"
        lines.append(f"{SPACES[space]}.{form} {operands};")
    lines += ["mov.u64 %t1, %clock64;", "mov.u32 %x, 0;"]
    if not is_store:
        lines += [f"xor.b32 %x, %x, %d{i};" for i in range(count * words)]
    lines += [
        "setp.eq.u32 %rare, %x, 0x9e3779b9;",
        f"@!%rare bra done_{name};",
        "ld.param.u64 %p, [sink];",
        "st.global.b32 [%p], %x;",
        f"done_{name}:",
        "mov.u64 %t2, %clock64;",
        "add.u32 %i, %i, 1;",
        "setp.lt.u32 %more, %i, %n;",
        f"@%more bra loop_{name};",
        "ld.param.u64 %p, [times];",
        "st.global.v2.u64 [%p], {%t0, %t1};",
        "st.global.v2.u64 [%p + 16], {%t0, %t2};",
        "ret;",
        "}",
        "",
    ]
    return "\n".join(lines)


def cpi_module(target: str, spaces: Iterable[str] = SPACES, widths: Iterable[int] = WIDTHS) -> str:
    """For each memory and width a kernel of all accesses and one of half of them."""
    head = _driver.head(target) + f".shared .align 1024 .b8 tile[{CPI_SHARED}];\n"
    kernels = [
        (space, width, number(space, width) // part)
        for space in spaces
        for width in widths
        for part in (1, 2)
    ]
    return head + "\n".join(cpi_entry(*kernel) for kernel in kernels)


# Bandwidth.

COPIES = ("read", "write", "copy")


class Mover(NamedTuple):
    """A kernel: what it does, the threads of a block, and a thread's vectors of 16 bytes a step."""

    kind: str
    threads: int = 512
    vectors: int = 8

    @property
    def step(self) -> int:
        """Bytes that a block moves in one step of its loop."""
        return self.threads * self.vectors * 16


# Small blocks copy device memory best: see docs/dev/kernels/probe.md.
MOVERS = {kind: Mover(kind) for kind in COPIES} | {"dram_copy": Mover("copy", 256, 1)}


def bandwidth_entry(name: str) -> str:
    """Each block moves `chunk` bytes `passes` times, from `stride` bytes times its number on."""
    kind, threads, count = mover = MOVERS[name]
    lines = [
        f".visible .entry {name}(.param .u64 from, .param .u64 to, .param .u32 chunk,",
        ".param .u32 stride, .param .u32 passes) {",
        f".reg .b32 %d<{4 * count}>, %x<4>, %t, %b, %chunk, %i, %pass, %passes;",
        ".reg .b64 %from, %to, %p, %q, %r, %at, %wide;",
        ".reg .pred %more, %rare;",
        "ld.param.u64 %from, [from];",
        "ld.param.u64 %to, [to];",
        "ld.param.u32 %chunk, [chunk];",
        "ld.param.u32 %b, [stride];",
        "ld.param.u32 %passes, [passes];",
        "mov.u32 %t, %ctaid.x;",
        "mul.wide.u32 %p, %t, %b;",
        "mov.u32 %t, %tid.x;",
        "mul.wide.u32 %q, %t, 16;",
        "add.u64 %p, %p, %q;",
        "add.u64 %from, %from, %p;",
        "add.u64 %to, %to, %p;",
        *([] if kind == "copy" else ["ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%from];"]),
        "mov.u32 %pass, 0;",
        f"pass_{name}:",
        "mov.u32 %i, 0;",
        f"step_{name}:",
        '.pragma "nounroll";',
        "cvt.u64.u32 %wide, %i;",
        "add.u64 %q, %from, %wide;",
        "add.u64 %r, %to, %wide;",
    ]
    vectors = [", ".join(f"%d{4 * u + i}" for i in range(4)) for u in range(count)]
    if kind != "write":
        lines += [
            f"ld.global.cg.v4.b32 {{{vector}}}, [%q + {u * threads * 16}];"
            for u, vector in enumerate(vectors)
        ]
    if kind == "read":
        lines += [f"xor.b32 %x{i % 4}, %x{i % 4}, %d{i};" for i in range(4 * count)]
    else:
        same = ", ".join(f"%x{i}" for i in range(4))
        lines += [
            f"st.global.v4.b32 [%r + {u * threads * 16}], {{{vector if kind == 'copy' else same}}};"
            for u, vector in enumerate(vectors)
        ]
    lines += [
        f"add.u32 %i, %i, {mover.step};",
        "setp.lt.u32 %more, %i, %chunk;",
        f"@%more bra step_{name};",
        "add.u32 %pass, %pass, 1;",
        "setp.lt.u32 %more, %pass, %passes;",
        f"@%more bra pass_{name};",
    ]
    if kind == "read":  # a use of the loads, so that ptxas keeps them
        lines += [
            *(f"xor.b32 %x0, %x0, %x{i};" for i in (1, 2, 3)),
            "setp.eq.u32 %rare, %x0, 0x9e3779b9;",
            "@%rare st.global.b32 [%to], %x0;",
        ]
    lines += ["ret;", "}", ""]
    return "\n".join(lines)


def bandwidth_module(target: str) -> str:
    """A module with the kernels of MOVERS."""
    return _driver.head(target) + "\n".join(map(bandwidth_entry, MOVERS))
