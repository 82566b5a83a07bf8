"""Checks of records: each returns sentences on what contradicts itself or the hardware's limits.

Those of LIMITS can only fail through a fault of a kernel or of the measurement. Those of PATTERNS
hold on the GPUs of Sun et al. 2023, or on others that were measured; elsewhere they say what is
different.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tcgemm import published
from tcgemm.lab import store
from tcgemm.lab.probe import groups, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Record = dict[str, Any]
    Check = Callable[[dict[str, Any], Sequence[Record]], Iterator[str]]

LOOPS = ("mma", "sparse", "wmma")
TABLES: dict[str, tuple[str, ...]] = {
    "A100": ("III", "VI"),
    "RTX 3070 Ti": ("IV", "VII"),
    "RTX 2080 Ti": ("V",),
}
# Rates that contradict the latencies beside them: table, row and warps.
MISPRINTED = {
    ("VI", "f16 f32 m16n8k16", 4),
    ("VI", "tf32 f32 m16n8k16", 8),
    ("VI", "s8 s32 m16n8k32", 8),
}
SLOWEST_CLOCK = 0.7  # of the largest; a launch of milliseconds is not throttled further


def of_row(row: str) -> int:
    """FMA of the instruction that a record's row names."""
    shape = re.search(r"m(\d+)n(\d+)k(\d+)", row)
    if shape is None:
        raise ValueError(f"The row {row!r} names no shape.")
    m, n, k = map(int, shape.groups())
    quads = rows.QUADS if (m, n, k) == (8, 8, 4) and " f16 " in row else 1
    return m * n * k * quads


def cells(records: Sequence[Record], *groups: str) -> dict[str, list[Record]]:
    """Row -> its records of one block with the chain through the accumulator."""
    selection = [
        record
        for record in records
        if record["group"] in groups and record["mode"] == "one" and record.get("chain", "c") == "c"
    ]
    selection.sort(key=lambda record: record["row"])
    return {row: list(part) for row, part in groupby(selection, key=lambda record: record["row"])}


def free(part: Sequence[Record]) -> list[Record]:
    """The records without conflicts."""
    return [record for record in part if record.get("factor", 1) == 1 and "layout" not in record]


def at(part: Sequence[Record], warps: int, ilp: int) -> Record | None:
    """The record of a number of warps and independent instructions, without conflicts."""
    for record in free(part):
        if (record["warps"], record["ilp"]) == (warps, ilp):
            return record
    return None


def consistent(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """rate * latency is the work of a body, within 1 %."""
    for row, part in cells(records, *LOOPS).items():
        for record in part:
            work = record["warps"] * record["ilp"] * of_row(row)
            if abs(record["rate"] * record["latency"] - work) > 0.01 * work:
                yield (
                    f"{row}, {record['warps']} warps, ILP {record['ilp']}: rate x latency is "
                    f"{record['rate'] * record['latency']:.0f}, and the work is {work}."
                )


def below_peak(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """No rate is above the peak of the tensor cores or of shared memory, within 1 %."""
    for record in records:
        peak = record.get("peak")
        if peak and record["rate"] > 1.01 * peak:
            yield (
                f"{record['row']}, {record['warps']} warps, ILP {record['ilp']}: "
                f"{record['rate']:.0f} {record['unit']} is above the peak of {peak}."
            )
        if record["group"] == "global" and record["rate"] > 1.01 * 128:
            yield f"{record['row']}: {record['rate']:.0f} B/clk is above 128."


def whole_chip(header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """On all SMs, timed by events, the clock is possible and the rate is an SM's within 5 %."""
    most = (header.get("clocks") or {}).get("sm_max_mhz")
    for record in records:
        if record["mode"] != "chip" or record["group"] == "bandwidth":
            continue
        mhz = record["clock_mhz"]
        if most and mhz > 1.02 * most:
            yield f"{record['row']}: the events say {mhz:.0f} MHz of at most {most:.0f}."
        if most and mhz < SLOWEST_CLOCK * most:
            yield (
                f"{record['row']}: the events say {mhz:.0f} MHz, less than {SLOWEST_CLOCK} of "
                f"{most:.0f}: the clocks and the events do not measure the same launch, or "
                "something limits the clock."
            )
        lone_records = [
            lone
            for lone in records
            if lone["mode"] == "one"
            and all(
                lone.get(key) == record.get(key)
                for key in ("group", "row", "warps", "ilp", "chain", "a")
            )
        ]
        for lone in lone_records:
            if abs(record["rate"] - lone["rate"]) > 0.05 * lone["rate"]:
                yield (
                    f"{record['row']}: {record['rate']:.0f} {record['unit']} on all SMs and "
                    f"{lone['rate']:.0f} on one."
                )


def machine_code(header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """A loop has as many tensor-core instructions as csrc/isa/native.h says, and nothing but the
    accesses stands between two reads of the clock (and at most 4 others): none is hoisted.
    """
    instructions = rows.by_label(header["arch"])
    for row, part in cells(records, *LOOPS, "wgmma").items():
        of = instructions.get(part[0].get("base", row))
        if of is None:
            continue
        for record in part:
            count = sum(record["sass"].values())
            if count != of.opcode_count:
                yield (
                    f"{row}, ILP {record['ilp']}: the loop has {count} tensor-core instructions "
                    f"for one, expected {of.opcode_count}."
                )
    for row, part in cells(records, "ldmatrix", "shared").items():
        if any(sum(record["sass"].values()) != 1 for record in part):
            yield f"{row}: the loop has another number of accesses than the PTX text."
    for record in records:
        if record["group"] == "global":
            count, between = sum(record["sass"].values()), record.get("between") or record["ilp"]
            if count != record["ilp"] or between > count + 4:
                yield (
                    f"{record['row']}: {between} instructions are between the clocks, {count} of "
                    f"them accesses, expected {record['ilp']}."
                )


def conflicts(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """The cycles of a load are those that the model of the banks predicts, within 6 %."""
    yield from _cycles(records, ("ld",))


def store_conflicts(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """The same of a store, which may take more."""
    yield from _cycles(records, ("st",))


def is_swept(record: Record) -> bool:
    """True for a record of many warps with conflicts, or of a layout."""
    warps, _ = groups.SATURATED
    with_conflicts = "layout" in record or record.get("factor", 1) > 1
    return with_conflicts and record["warps"] == warps


def _cycles(records: Sequence[Record], kinds: tuple[str, ...]) -> Iterator[str]:
    for row, part in cells(records, "ldmatrix", "shared").items():
        for record in part:
            if not row.startswith(kinds) or not is_swept(record):
                continue
            expected, cycles = record["predicted_cycles"], record["measured_cycles"]
            if abs(cycles - expected) > 0.06 * expected:
                of = record.get("layout", f"stride {record.get('factor')}")
                yield f"{row}, {of}: {cycles:.2f} cycles an access, the model says {expected}."


def affine(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """The latency of a load grows by the same for each cycle of a conflict (r^2 > 0.99)."""
    for row, part in cells(records, "shared").items():
        points = {
            record["predicted_cycles"]: record["latency"]
            for record in part
            if record["warps"] == record["ilp"] == 1 and "layout" not in record
        }
        if row.startswith("ld") and len(points) > 2 and r_squared(points) <= 0.99:
            yield f"{row}: the latency is not affine in the conflict: {points}."


def r_squared(points: dict[int, float]) -> float:
    """The share of the variance that a line explains."""
    count = len(points)
    x, y = sum(points) / count, sum(points.values()) / count
    xx = sum((value - x) ** 2 for value in points)
    yy = sum((value - y) ** 2 for value in points.values())
    xy = sum((a - x) * (b - y) for a, b in points.items())
    return xy * xy / (xx * yy) if xx and yy else 0.0


def layouts(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """Every element has the place that the layouts of PTX say."""
    for record in records:
        if record["group"] != "layout":
            continue
        if record["wrong"]:
            of = f", the first at {record['first']}" if "first" in record else ""
            yield (
                f"{record['row']}: {record['wrong']} of {record['elements']} elements have another "
                f"place{of}."
            )
        if record.get("metadata_wrong"):
            yield f"{record['row']}: {record['metadata_wrong']} nibbles of metadata act elsewhere."


def lone_warp(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """A warp has one of the four parts of an SM: at most a quarter of the best rate, and 3 %."""
    for row, part in cells(records, *LOOPS).items():
        best = max(record["rate"] for record in part)
        lone = max((record["rate"] for record in part if record["warps"] == 1), default=0)
        is_whole = part[0]["native"] and any(record["warps"] >= 4 for record in part)
        if is_whole and lone > 1.03 * best / 4:
            yield f"{row}: one warp has {lone:.0f}, more than a quarter of {best:.0f}."


def parts(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """1, 2 and 4 warps have one latency within a clock, 6 and 8 warps one within 5 %."""
    for row, part in cells(records, *LOOPS).items():
        if not part[0]["native"]:
            continue
        for ilp in {record["ilp"] for record in part}:
            few = [record["latency"] for warps in (1, 2, 4) if (record := at(part, warps, ilp))]
            if few and max(few) - min(few) > 1:
                yield f"{row}, ILP {ilp}: 1, 2 and 4 warps take {min(few):.1f} to {max(few):.1f}."
            six, eight = at(part, 6, ilp), at(part, 8, ilp)
            if six and eight and abs(six["latency"] / eight["latency"] - 1) > 0.05:
                yield (
                    f"{row}, ILP {ilp}: 6 warps take {six['latency']:.1f}, 8 "
                    f"{eight['latency']:.1f}."
                )


def sparse_completion(header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """On Ampere a sparse instruction takes as long as the dense one of half its k."""
    if header["arch"] != "Ampere":
        return
    dense = cells(records, "mma")
    for row, part in cells(records, "sparse").items():
        k = int(row.rsplit("k", 1)[1])
        half = dense.get(row.replace("mma.sp", "mma").replace(f"k{k}", f"k{k // 2}"), [])
        sparse, other = at(part, 1, 1), at(half, 1, 1)
        if sparse and other and abs(sparse["latency"] - other["latency"]) > 1:
            yield f"{row}: {sparse['latency']:.1f} clocks, the dense one {other['latency']:.1f}."


def wgmma_peak(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """With 256 columns and a in registers, wgmma is within 3 % of the peak."""
    of = [record for record in records if record["group"] == "wgmma" and record["mode"] == "one"]
    of = [record for record in of if record["n"] == 256 and record["a"] == "RS" and record["peak"]]
    of.sort(key=lambda record: record["row"])
    for row, part in groupby(of, key=lambda record: record["row"]):
        best = max(part, key=lambda record: record["rate"])
        if best["rate"] < 0.97 * best["peak"]:
            yield f"{row}: {best['rate']:.0f} of {best['peak']} FMA/clk/SM."


def doubles(header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """On Hopper an mma.sync of float64 with 16 rows is within 5 % of the peak."""
    for row, part in cells(records, "mma").items() if header.get("arch") == "Hopper" else ():
        best = max(part, key=lambda record: record["rate"])
        is_filled = any(record["warps"] >= 8 for record in part)
        if " f64 m16" in row and best["peak"] and is_filled and best["rate"] < 0.95 * best["peak"]:
            yield f"{row}: {best['rate']:.0f} of {best['peak']} FMA/clk/SM."


def matrices(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """ldmatrix.x1, x2 and x4 take as long as LDS.32 with 1, 2 and 4-way conflicts, within 1."""
    words = cells(records, "shared").get("ld.shared.u32", [])
    ways = {
        record["predicted_cycles"]: record["latency"]
        for record in words
        if record["warps"] == record["ilp"] == 1 and "layout" not in record
    }
    for row, part in cells(records, "ldmatrix").items():
        lone = at(part, 1, 1)
        if lone and lone["predicted_cycles"] in ways:
            clocks = ways[lone["predicted_cycles"]]
            if abs(lone["latency"] - clocks) > 1:
                yield f"{row}: {lone['latency']:.1f} clocks, LDS.32 with as many {clocks:.1f}."


def memories(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """L2 is read at more than 1.3 times the rate of device memory."""
    rates = {record["row"]: record["rate"] for record in records if record["group"] == "bandwidth"}
    for row in ("L2 read", "L2 read, one 512 KB"):
        if "DRAM read" in rates and row in rates and rates[row] <= 1.3 * rates["DRAM read"]:
            yield f"{row}: {rates[row]:.0f} GB/s, device memory {rates['DRAM read']:.0f}."


def documented(header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """On a GPU of the published tables, completion and rates are theirs within 5 %."""
    for gpu, names in TABLES.items():
        if gpu not in header["gpu"]:
            continue
        for row, part in cells(records, "mma", "sparse").items():
            name = names[-1 if "mma.sp" in row else 0]
            of = rows.published(row)
            cell = published.table("003", name, gpu).get(of or "", {})
            completion, record = cell.get("completion"), at(part, 1, 1)
            if completion and record and abs(record["latency"] / completion - 1) > 0.05:
                yield f"{row}: {record['latency']:.1f} clocks, published {completion}."
            for warps in (4, 8):
                rate, ilp = (cell.get(f"{name}, {warps} warps") for name in ("rate", "ILP"))
                record = at(part, warps, int(ilp)) if ilp else None
                is_right = (name, of, warps) not in MISPRINTED
                if rate and record and is_right and abs(record["rate"] / rate - 1) > 0.05:
                    yield (
                        f"{row}, {warps} warps, ILP {ilp:.0f}: {record['rate']:.0f} FMA/clk/SM, "
                        f"published {rate}."
                    )


def copies(_header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """Device memory is copied at the rate of torch's copy_, within 5 %."""
    for record in records:
        by_torch = record.get("torch_rate")
        if by_torch is not None and abs(record["rate"] / by_torch - 1) > 0.05:
            yield f"{record['row']}: {record['rate']:.0f} GB/s, by torch {by_torch:.0f}."


def as_stored(header: dict[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """Rates in FMA a clock and SM are as of stored GPUs of this compute capability, in 3 %."""
    for name, stored in store.results("probe").items():
        if stored["header"].get("capability") != header.get("capability"):
            continue
        stored_cells = cells(stored["records"], *LOOPS)
        for row, part in cells(records, *LOOPS).items():
            of = {(cell["warps"], cell["ilp"]): cell["rate"] for cell in stored_cells.get(row, [])}
            best = max(part, key=lambda record: record["rate"])
            rate = of.get((best["warps"], best["ilp"]))
            if rate and abs(best["rate"] / rate - 1) > 0.03:
                yield f"{row}: {best['rate']:.0f} FMA/clk/SM, {name} {rate:.0f}."


LIMITS: tuple[Check, ...] = (
    *(consistent, below_peak, whole_chip, machine_code, conflicts, affine, layouts),
)
PATTERNS: tuple[Check, ...] = (
    *(lone_warp, parts, sparse_completion, wgmma_peak, doubles, matrices, memories),
    *(documented, store_conflicts, as_stored, copies),
)


def sentences(
    results: dict[str, Any], checks: Sequence[Check], most: int | None = None
) -> list[str]:
    """The complaints of some checks about the results of a file, at most so many of each."""
    lines = []
    for check in checks:
        complaints = list(check(results["header"], results["records"]))
        lines += [f"{check.__name__}: {complaint}" for complaint in complaints[:most]]
        if most is not None and len(complaints) > most:
            lines.append(f"{check.__name__}: ... and {len(complaints) - most} more.")
    return lines
