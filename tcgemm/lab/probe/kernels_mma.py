"""PTX text of the loops of mma, mma.sp and wmma instructions.

A body has ILP independent instructions and a warp sync. Each warp reads the clock before and after
all bodies (Sun et al. 2023). Slots of a body have operands of their own. Where ptxas emulates an
instruction, an unknown zero is added to the operands in each body: else it would move conversions,
and products, out of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcgemm import _driver
from tcgemm.emulate import ptx
from tcgemm.emulate.table import Instruction
from tcgemm.lab.probe import rows

SUFFIX = {"r": "b32", "f": "f32", "d": "f64"}
ZERO = {"r": "0", "f": "0f00000000", "d": "0d0000000000000000"}
THREADS = 1024
CELL = 8 * THREADS  # bytes of one register of a block in the buffer of operands
MOST_WORDS = 216  # of operands and results in a thread, which has 255 registers
CHAINS = ("c", "a0", "a1")
PARAMETERS = ".param .u64 times, .param .u64 data, .param .u64 sink, .param .u32 bodies"


def start() -> list[str]:
    """The block begins together, and reads the clock."""
    return ["bar.sync 0;", "mov.u64 %t0, %clock64;"]


def stop() -> list[str]:
    """The clock again; a warp stores both at times[block][warp]."""
    return [
        "mov.u64 %t1, %clock64;",
        "ld.param.u64 %p, [times];",
        "mov.u32 %i, %ctaid.x;",
        "mov.u32 %n, %ntid.x;",
        "mad.lo.u32 %i, %i, %n, %t;",
        "shr.u32 %i, %i, 5;",
        "mul.wide.u32 %q, %i, 16;",
        "add.u64 %p, %p, %q;",
        "st.global.v2.u64 [%p], {%t0, %t1};",
        "ld.param.u64 %p, [sink];",
        "mul.wide.u32 %q, %t, 8;",
        "add.u64 %p, %p, %q;",
    ]


def prologue(name: str) -> list[str]:
    """The entry, the registers that all kernels have, and the address of a lane's operands."""
    return [
        f".visible .entry {name}({PARAMETERS}, .param .u32 zero) {{",
        ".reg .b32 %meta, %i, %n, %z, %t;",
        ".reg .b64 %p, %q, %t0, %t1;",
        ".reg .pred %more;",
        "ld.param.u64 %p, [data];",
        "ld.param.u32 %n, [bodies];",
        "ld.param.u32 %z, [zero];",
        "mov.u32 %t, %tid.x;",
        "mul.wide.u32 %q, %t, 8;",
        "add.u64 %p, %p, %q;",
    ]


def loop(name: str, body: Sequence[str]) -> list[str]:
    """The body %n times. The pragma has to stand behind the label."""
    return [
        *("mov.u32 %i, 0;", *start(), f"loop_{name}:", '.pragma "nounroll";'),
        *body,
        *("add.u32 %i, %i, 1;", "setp.lt.u32 %more, %i, %n;", f"@%more bra loop_{name};"),
    ]


def entry(mma: Instruction, ilp: int, chain: str = "c") -> str:
    """One kernel, whose name is `chain` with `ilp`.

    With the chain "c" the result is the next accumulator; with "a0" and "a1" its first or second
    register is the first register of the next a.
    """
    name, words = f"{chain}{ilp}", rows.counts(mma)
    types = (mma.input, mma.input_b, mma.accumulator)
    kinds = [ptx.kind_of(element) for element in types]
    lines = prologue(name)
    lines += [
        f".reg .{SUFFIX[kind]} %{letter}<{count * ilp}>;"
        for letter, count, kind in zip("abd", words, kinds, strict=True)
    ]
    if mma.is_sparse:
        lines.append("ld.global.b32 %meta, [%p];")
    at = CELL
    for letter, count, kind in zip("ab", words[:2], kinds[:2], strict=True):
        for index in range(count * ilp):
            lines.append(f"ld.global.{SUFFIX[kind]} %{letter}{index}, [%p + {at}];")
            at += CELL
    kind = kinds[2]
    lines += [f"mov.{SUFFIX[kind]} %d{i}, {ZERO[kind]};" for i in range(words[2] * ilp)]
    if chain != "c":
        lines.append(f".reg .{SUFFIX[kind]} %c<{words[2]}>;")
        lines += [f"mov.{SUFFIX[kind]} %c{i}, {ZERO[kind]};" for i in range(words[2])]
    body = []
    for slot in range(ilp):
        a, b, d = (_list(element, slot, count) for element, count in zip("abd", words, strict=True))
        if not mma.is_native:
            body += [
                f"add.u32 %{letter}{slot * count + i}, %{letter}{slot * count + i}, %z;"
                for letter, count in zip("ab", words[:2], strict=True)
                for i in range(count)
            ]
        c = d if chain == "c" else _list("c", 0, words[2])
        body.append(ptx.instruction(mma, a, b, c, d))
        if chain != "c":
            move = "mov.f64" if kinds[0] == "d" else "mov.b32"
            body.append(f"{move} %a{slot * words[0]}, %d{slot * words[2] + int(chain[1])};")
    lines += loop(name, [*body, "bar.warp.sync 0xffffffff;"])
    lines += stop()
    lines += [f"st.global.{SUFFIX[kind]} [%p + {i * CELL}], %d{i};" for i in range(words[2] * ilp)]
    return "\n".join([*lines, "ret;", "}", ""])


def _list(letter: str, slot: int, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{slot * count + i}" for i in range(count)) + "}"


def fits(mma: Instruction, ilp: int) -> bool:
    """True if the operands and results of so many slots fit the registers of a thread."""
    return ilp * sum(_words(mma)) <= MOST_WORDS


def _words(mma: Instruction) -> list[int]:
    kinds = [ptx.kind_of(name) for name in (mma.input, mma.input_b, mma.accumulator)]
    return [
        count * (2 if kind == "d" else 1)
        for count, kind in zip(rows.counts(mma), kinds, strict=True)
    ]


def chains(mma: Instruction) -> tuple[str, ...]:
    """The chains that an instruction can have."""
    if mma.family != "mma" or not mma.is_native:
        return ("c",)
    return CHAINS if rows.counts(mma)[2] > 1 else CHAINS[:2]


def modules(mma: Instruction, target: str, ilps: Sequence[int]) -> list[tuple[str, list[str]]]:
    """(text, names of its entries): a kernel for each ILP that fits, and one for each chain.

    The kernels of an emulated instruction are modules of their own: ptxas 13.0 crashes where two
    entries call the same routine.
    """
    texts = [(f"c{ilp}", entry(mma, ilp)) for ilp in ilps if fits(mma, ilp)]
    texts += [(f"{chain}1", entry(mma, 1, chain)) for chain in chains(mma)[1:]]
    head = _driver.head(target)
    if not mma.is_native:
        return [(head + text, [name]) for name, text in texts]
    return [(head + "\n".join(text for _, text in texts), [name for name, _ in texts])]
