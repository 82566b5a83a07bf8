"""PTX text of the loops of wgmma instructions (9.0a).

A body is a group of `depth` instructions that add to the same accumulators: the fence, the
instructions, the commit and the wait, as PTX ISA 9.7.15.7 demands. Their operands walk through a
row of 128 bytes of k, with the 128-byte swizzle. Warpgroups have an a of their own and share b.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcgemm import _driver
from tcgemm.emulate import ptx
from tcgemm.emulate.table import Instruction
from tcgemm.lab.probe.kernels_mma import CELL, SUFFIX, ZERO, loop, prologue, stop

GROUPS = (1, 2, 3)
COLUMNS = (8, 16, 32, 64, 96, 128, 192, 256)
DEPTHS = (1, 16)  # one instruction shows the completion latency, sixteen the rate
ROW = 128  # bytes
TILE_A, TILE_B = 64 * ROW, 256 * ROW
SHARED = len(GROUPS) * TILE_A + TILE_B
# The swizzle, the distance of groups of 8 rows, and the offset that is not read (9.7.15.5.1.2).
DESCRIPTOR = 1 << 62 | 8 * ROW // 16 << 32 | 1 << 16


def entry(mma: Instruction, n: int, depth: int, from_registers: bool) -> str:
    """One kernel: a from registers (RS) or from shared memory (SS)."""
    name = entry_name(n, depth, from_registers)
    kind = ptx.kind_of(mma.accumulator)
    count = ptx.count(16 * n, mma.accumulator)
    # A warp has 16 rows of the 64; a block of n columns is n / 8 blocks of 8.
    sums = ptx.registers("d", count)
    lines = [
        *prologue(name),
        f".reg .{SUFFIX[kind]} %d<{count}>;",
        ".reg .b32 %a<4>, %from, %group, %step;",
        ".reg .b64 %da<4>, %db<4>, %at, %w0, %w1;",
        ".reg .pred %yes;",
        "setp.eq.u32 %yes, %n, %n;",
        "ld.global.b32 %meta, [%p];",
        *(f"ld.global.b32 %a{i}, [%p + {(i + 1) * CELL}];" for i in range(4)),
        *fill(),
        "shr.u32 %group, %t, 7;",
        "shfl.sync.idx.b32 %group, %group, 0, 31, 0xffffffff;",
        "mov.u32 %from, tile;",
        f"add.u32 %step, %from, {len(GROUPS) * TILE_A};",
        f"mad.lo.u32 %from, %group, {TILE_A}, %from;",
    ]
    for letter, register in (("a", "from"), ("b", "step")):
        lines += [
            f"and.b32 %{register}, %{register}, 0x3ffff;",
            f"shr.u32 %{register}, %{register}, 4;",
            f"cvt.u64.u32 %d{letter}0, %{register};",
            f"or.b64 %d{letter}0, %d{letter}0, {DESCRIPTOR};",
            *(f"add.u64 %d{letter}{i}, %d{letter}0, {2 * i};" for i in range(1, 4)),
        ]
    lines += [f"mov.{SUFFIX[kind]} %d{i}, {ZERO[kind]};" for i in range(count)]
    body = [f"add.u32 %a{i}, %a{i}, %z;" for i in range(4)] if from_registers else []
    body.append("wgmma.fence.sync.aligned;")
    for index in range(depth):
        a = ptx.registers("a", 4) if from_registers else f"%da{index % 4}"
        b = f"%db{index % 2 * 2 if mma.is_sparse else index % 4}"
        body.append(ptx.group_instruction(mma, n, sums, a, b))
    body += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    lines += [*loop(name, body), *stop()]
    lines += [f"st.global.{SUFFIX[kind]} [%p + {i * CELL}], %d{i};" for i in range(count)]
    return "\n".join([*lines, "ret;", "}", ""])


def entry_name(n: int, depth: int, from_registers: bool) -> str:
    """ "rs_256_16"."""
    return f"{'rs' if from_registers else 'ss'}_{n}_{depth}"


def fill() -> list[str]:
    """Copies the buffer of operands into shared memory, where the tensor cores read it."""
    return [
        ".reg .b32 %x<4>, %to, %end, %each;",
        "mov.u32 %to, tile;",
        f"add.u32 %end, %to, {SHARED};",
        "shl.b32 %each, %t, 4;",
        "add.u32 %to, %to, %each;",
        "mov.u32 %each, %ntid.x;",
        "shl.b32 %each, %each, 4;",
        "cvt.u64.u32 %w0, %each;",
        "ld.param.u64 %at, [data];",
        "mul.wide.u32 %w1, %t, 16;",
        "add.u64 %at, %at, %w1;",
        f"add.u64 %at, %at, {CELL};",
        "copy:",
        '.pragma "nounroll";',
        "ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%at];",
        "st.shared.v4.b32 [%to], {%x0, %x1, %x2, %x3};",
        "add.u64 %at, %at, %w0;",
        "add.u32 %to, %to, %each;",
        "setp.lt.u32 %more, %to, %end;",
        "@%more bra copy;",
        "fence.proxy.async.shared::cta;",
    ]


def columns(mma: Instruction, every: bool) -> tuple[int, ...]:
    """The n that are measured of an instruction."""
    return COLUMNS if every else (64, 128, 256)


def module(
    mma: Instruction, target: str, ns: Sequence[int], depths: Sequence[int] = DEPTHS
) -> tuple[str, list[str]]:
    """(text, names of its entries): kernels for these n, a from shared memory or registers."""
    head = _driver.head(target) + ".extern .shared .align 1024 .b8 tile[];\n"
    kernels = [(n, depth, rs) for n in ns for depth in depths for rs in (False, True)]
    text = "\n".join(entry(mma, *kernel) for kernel in kernels)
    return head + text, [entry_name(*kernel) for kernel in kernels]
