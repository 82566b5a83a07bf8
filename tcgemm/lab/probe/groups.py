"""What the probe measures: for each group its rows, and the records of a row.

A record is a dict for JSON. Clocks are of one block; latency is clocks a body, and rate is
the work of a body over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tcgemm.emulate import ptx
from tcgemm.lab.model import banks
from tcgemm.lab.probe import (
    bandwidth,
    kernels_memory,
    kernels_mma,
    kernels_wgmma,
    layouts,
    rows,
    sass,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tcgemm.emulate.table import Instruction
    from tcgemm.lab.probe.session import Module, Session

    Record = dict[str, Any]

BODIES = 1024
CHIP_CYCLES = 4_000_000  # of a launch on the whole chip
SLOWEST = 3 / 100  # a rate so far below the best one counts as converged
WARPS = (1, 2, 4, 6, 8, 12, 16, 32)
ILPS = tuple(range(1, 9))
SATURATED = (16, 4)  # warps and ILP that hide the latency of shared memory
CONFLICTS = (1, 2, 4, 8, 16, 32)


class Options(NamedTuple):
    """What to measure.

    Attributes:
        row (str | None): a type, shape or name that rows have; None: all that do not mix types.
        warps (tuple[int, ...]): of a block.
        ilps (tuple[int, ...]): independent instructions of a body.
        chains (tuple[str, ...]): of "c", "a0" and "a1".
    """

    row: str | None = None
    warps: tuple[int, ...] = WARPS
    ilps: tuple[int, ...] = ILPS
    chains: tuple[str, ...] = kernels_mma.CHAINS


class Group(NamedTuple):
    """A part of the probe."""

    title: str
    names: Callable[[str, Options], list[str]]  # of the rows that an architecture has
    measure: Callable[[Session, str, Options], Iterator[Record]]


def convergence(cells: Sequence[Record], warps: int) -> Record | None:
    """The record with the fewest independent instructions whose rate is within 3 % of the best."""
    of = [cell for cell in cells if cell["warps"] == warps]
    best = max((cell["rate"] for cell in of), default=0)
    candidates = [cell for cell in of if cell["rate"] >= (1 - SLOWEST) * best]
    return min(candidates, key=lambda cell: cell["ilp"], default=None)


# Tensor cores.

FAMILIES: dict[str, tuple[str, ...]] = {
    "mma": ("mma",),
    "sparse": ("mma.sp",),
    "wmma": ("wmma",),
    "wgmma": ("wgmma", "wgmma.sp"),
}


def _instructions(group: str, arch: str, options: Options) -> dict[str, Instruction]:
    return {rows.label(mma): mma for mma in rows.select(arch, FAMILIES[group], options.row)}


def _record(
    session: Session, mma: Instruction, clocks: int, warps: int, ilp: int, work: int
) -> Record:
    latency = clocks / BODIES
    return {
        "native": mma.is_native,
        "mode": "one",
        "chain": "c",
        "warps": warps,
        "ilp": ilp,
        "iters": BODIES,
        "cycles": clocks,
        "latency": latency,
        "rate": work / latency,
        "unit": "FMA/clk/SM",
        "peak": rows.peak(mma) if session.has_peaks else None,
        "clock_mhz": None,
    }


def _code(mma: Instruction, module: Module, entry: str, depth: int) -> dict[str, Any]:
    """The opcodes of one instruction and the length of the loop: by nvdisasm, or of the table."""
    opcodes_of_loop = module.loop(entry)
    if opcodes_of_loop is None:
        return {"sass": {mma.opcode: mma.opcode_count}, "instructions": None}
    opcodes = {name: count // depth for name, count in sass.tensor(opcodes_of_loop).items()}
    return {"sass": opcodes, "instructions": opcodes_of_loop.total()}


def _chip(module: Module, entry: str, best: Record, work: int, shared: int = 0) -> Record | None:
    """The best cell on all SMs: its rate by events and by the clock, which give the clock's MHz."""
    bodies = max(BODIES, int(CHIP_CYCLES / best["latency"]))
    launch = module.chip(entry, best["warps"], bodies, shared)
    if launch is None:
        return None
    processors = module.session.processors
    return best | {
        "mode": "chip",
        "iters": bodies,
        "cycles": launch.cycles,
        "latency": launch.cycles / bodies,
        "rate": work * bodies / launch.cycles,
        "tflops": 2 * work * bodies * processors / launch.ms / 1e9,
        "clock_mhz": launch.cycles / launch.ms / 1e3,
        "blocks": processors,
    }


def _measure_mma(group: str) -> Callable[[Session, str, Options], Iterator[Record]]:
    def measure(session: Session, row: str, options: Options) -> Iterator[Record]:
        mma = _instructions(group, session.arch, options)[row]
        session.fill(mma)
        work, cells = rows.fma(mma), []
        line = ptx.instruction(mma, "a", "b", "c", "d").split(" ")[0]
        fields = {"group": group, "row": row, "ptx": line}
        texts = kernels_mma.modules(mma, session.target, options.ilps)
        for module, entries in [(session.module(text), entries) for text, entries in texts]:
            codes = {entry: _code(mma, module, entry, int(entry[-1])) for entry in entries}
            own = [entry for entry in entries if entry[0] == "c"]
            launches = [(entry, warps) for entry in own for warps in options.warps]
            dependent = [
                entry for entry in entries if entry[:-1] in options.chains and entry not in own
            ]
            launches += [(entry, 1) for entry in dependent]
            grid = [(*launch, cell) for cell, launch in enumerate(launches)]
            records = []
            for (entry, warps), clocks in zip(launches, _clocks(module, grid), strict=True):
                if clocks is None:
                    continue
                ilp = int(entry[-1])
                record = _record(session, mma, clocks, warps, ilp, warps * ilp * work)
                records.append(fields | codes[entry] | record | {"chain": entry[:-1]})
            yield from records
            cells += [record for record in records if record["chain"] == "c"]
            best = max(cells, key=lambda cell: (cell["rate"], -cell["warps"]), default=None)
            if best and mma.is_native and f"c{best['ilp']}" in own:
                size = best["warps"] * best["ilp"] * work
                chip = _chip(module, f"c{best['ilp']}", best, size)
                yield from [chip] if chip else []
            module.close()

    return measure


def _clocks(
    module: Module, grid: Sequence[tuple[str, int, int]], bodies: int = BODIES
) -> list[int | None]:
    """The clocks of any number of cells, 64 at a time."""
    clocks: list[int | None] = []
    for first in range(0, len(grid), 64):
        part = [(entry, warps, cell % 64) for entry, warps, cell in grid[first : first + 64]]
        clocks += module.grid(part, bodies)
    return clocks


def _measure_wgmma(session: Session, row: str, options: Options) -> Iterator[Record]:
    mma = _instructions("wgmma", session.arch, options)[row]
    session.fill(mma)
    every = options.row is not None or mma.name == "wgmma.m64nNk16.f32.f16.f16"
    columns = kernels_wgmma.columns(mma, every)
    text, _ = kernels_wgmma.module(mma, session.target, columns)
    module = session.module(text)
    line = ptx.group_instruction(mma, 256, "d", "a", "b").split(" ")[0].replace("n256", "nN")
    for rs in (False, True):
        cells, of_depth = [], {}
        for n in columns:
            for depth in kernels_wgmma.DEPTHS:
                entry = kernels_wgmma.entry_name(n, depth, rs)
                code = _code(mma, module, entry, depth)
                grid = [(entry, 4 * groups, groups) for groups in kernels_wgmma.GROUPS]
                clocks_of_grid = module.grid(grid, BODIES, kernels_wgmma.SHARED)
                for (_, warps, groups), clocks in zip(grid, clocks_of_grid, strict=True):
                    if clocks is None:
                        continue
                    work = groups * depth * rows.fma(mma, n)
                    record = {"group": "wgmma", "row": rows.label(mma, n), "ptx": line} | code
                    record |= _record(session, mma, clocks, warps, depth, work)
                    record |= {"a": "RS" if rs else "SS", "n": n, "base": row}
                    cells.append(record)
                    of_depth[id(record)] = (entry, work)
        yield from cells
        if cells:
            best = max(cells, key=lambda cell: cell["rate"])
            entry, work = of_depth[id(best)]
            chip = _chip(module, entry, best, work, kernels_wgmma.SHARED)
            yield from [chip] if chip else []
    module.close()


# Shared memory.


def chain_words(name: str, addresses: Sequence[int]) -> torch.Tensor:
    """The buffer of operands for an access at these addresses, one for each lane that has one."""
    access = kernels_memory.ACCESSES[name]
    lanes = [addresses[lane % len(addresses)] for lane in range(32)]
    contents, counts = (
        torch.zeros(kernels_memory.WORDS, dtype=torch.int64, device="cpu") for _ in range(2)
    )
    for lane in range(32):
        if name.endswith("trans"):  # the low half of the register is row 2 t, column g
            place = addresses[2 * (lane % 4)] + 2 * (lane // 4)
        elif name.startswith("ldmatrix"):
            place = addresses[lane // 4] + 4 * (lane % 4)
        else:
            place = lanes[lane]
        shift = 16 * (place % 4 // 2)
        word = place // 4
        if access.is_store:
            continue
        if int(counts[word]) & (1 << shift) == 0:  # lanes with one address read one word
            contents[word] += lanes[lane] << shift
            counts[word] += 1 << shift
    table = torch.tensor(lanes, device="cpu").repeat(kernels_memory.SLOTS)
    return torch.cat([table, contents, counts])


def strided(name: str, factor: int) -> list[int]:
    """Addresses whose bank conflicts grow with the factor: rows or lanes, so many widths apart."""
    access = kernels_memory.ACCESSES[name]
    stride = factor * access.width
    if name.startswith("ldmatrix"):
        matrices = access.lanes // 8
        return [8 * stride * m + row * stride for m in range(matrices) for row in range(8)]
    return [lane * stride for lane in range(32)]


def _shared_rows(prefixes: tuple[str, ...]) -> list[str]:
    return [name for name in kernels_memory.ACCESSES if name.startswith(prefixes)]


def _measure_shared(group: str) -> Callable[[Session, str, Options], Iterator[Record]]:
    def measure(session: Session, row: str, options: Options) -> Iterator[Record]:
        access = kernels_memory.ACCESSES[row]
        ilps = tuple(ilp for ilp in options.ilps if ilp <= kernels_memory.SLOTS)
        only = kernels_memory.shared_module(session.target, (row,), tuple({*ilps, 1, 4}))
        module = session.module(only)
        entries = {ilp: kernels_memory.entry_name(row, ilp) for ilp in (*ilps, 1, 4)}
        codes = {
            ilp: {name: count // ilp for name, count in _accesses(module, entry, access).items()}
            for ilp, entry in entries.items()
        }
        fields = {"group": group, "row": row, "ptx": access.ptx}

        def records(
            addresses: Sequence[int], cells: Sequence[tuple[int, int]], **extra: Any
        ) -> Iterator[Record]:
            session.write(chain_words(row, addresses))
            grid = [(entries[ilp], warps, i) for i, (warps, ilp) in enumerate(cells)]
            predicted = banks.cycles(addresses, access.width)
            for (warps, ilp), clocks in zip(cells, _clocks(module, grid), strict=True):
                if clocks is None:
                    continue
                latency = clocks / BODIES
                yield (
                    fields
                    | {
                        "sass": codes[ilp],
                        "native": True,
                        "mode": "one",
                        "warps": warps,
                        "ilp": ilp,
                        "iters": BODIES,
                        "cycles": clocks,
                        "latency": latency,
                        "rate": warps * ilp * access.bytes / latency,
                        "unit": "B/clk/SM",
                        "peak": 128,
                        "predicted_cycles": predicted,
                        "measured_cycles": latency / (warps * ilp),
                    }
                    | extra
                )

        free = strided(row, 1)
        yield from records(free, [(w, ilp) for ilp in ilps for w in options.warps], factor=1)
        for factor in CONFLICTS[1:]:
            addresses = strided(row, factor)
            if max(addresses) + 16 <= 4 * kernels_memory.WORDS:
                yield from records(addresses, [(1, 1), SATURATED], factor=factor)
        for name, addresses in layouts_of(row).items():
            yield from records(addresses, [(1, 1), SATURATED], layout=name)
        module.close()

    return measure


def _accesses(module: Module, entry: str, access: kernels_memory.Access) -> dict[str, int]:
    """The opcodes of the accesses of a loop; without nvdisasm, the opcode of the table."""
    opcodes = module.loop(entry)
    if opcodes is None:
        return {access.sass: int(entry.rsplit("_", 1)[1])}
    return sass.of_opcode(opcodes, access.sass)


OPCODES = {
    f"{kind}.shared.u{width}": f"{'LDS' if kind == 'ld' else 'STS'}.{width}"
    for kind in ("ld", "st")
    for width in (32, 64, 128)
}


def layouts_of(row: str) -> dict[str, list[int]]:
    """The addresses of this access to each layout of the models, if they have such an access."""
    result = {
        name: pattern.addresses
        for name, pattern in banks.PATTERNS.items()
        if pattern.opcode == OPCODES.get(row)
    }
    for name, (of, length) in banks.LAYOUTS.items():
        if row == "ldmatrix.x1":
            result[name] = banks.ldmatrix_addresses(of)
        elif row == "ld.shared.u32":
            result[name] = banks.fragment_addresses(of)
        elif row == "st.shared.u128":
            result[name] = banks.store_addresses(of, length)
    return result


# Cycles of an instruction.


def _cpi_rows() -> list[str]:
    return [
        f"{space} {width}" for space in kernels_memory.SPACES for width in kernels_memory.WIDTHS
    ]


def _measure_cpi(session: Session, row: str, _options: Options) -> Iterator[Record]:
    space, _, width_text = row.rpartition(" ")
    width = int(width_text)
    module = session.module(kernels_memory.cpi_module(session.target, (space,), (width,)))
    most = kernels_memory.number(space, width)
    opcodes = module.between_clocks(kernels_memory.cpi_name(space, width, most))
    opcode = row.split()[0]
    clocks = {}
    for count in (most, most // 2):
        session.times.zero_()
        module.launch(kernels_memory.cpi_name(space, width, count), 1, 8)
        pairs = session.times[0, 0, :2].cpu()
        clocks[count] = [int(pair[1] - pair[0]) for pair in pairs]
    module.close()
    issue_clocks, data_clocks = (clocks[most][i] - clocks[most // 2][i] for i in (0, 1))
    cpi = (issue_clocks if space == "STS" else max(issue_clocks, data_clocks)) / (most - most // 2)
    yield {
        "group": "global",
        "row": row,
        "ptx": kernels_memory.SPACES[space],
        "sass": {opcode: most} if opcodes is None else sass.of_opcode(opcodes, opcode),
        "between": opcodes and opcodes.total(),
        "mode": "cpi",
        "warps": 1,
        "ilp": most,
        "cycles": clocks[most][0],
        "cycles_to_data": clocks[most][1],
        "cpi": cpi,
        "rate": 4 * width / cpi,
        "unit": "B/clk/SM",
    }


GROUPS = {
    "mma": Group("mma.sync", lambda a, o: list(_instructions("mma", a, o)), _measure_mma("mma")),
    "sparse": Group(
        "mma.sp", lambda a, o: list(_instructions("sparse", a, o)), _measure_mma("sparse")
    ),
    "wgmma": Group("wgmma", lambda a, o: list(_instructions("wgmma", a, o)), _measure_wgmma),
    "wmma": Group("wmma", lambda a, o: list(_instructions("wmma", a, o)), _measure_mma("wmma")),
    "ldmatrix": Group(
        "ldmatrix", lambda a, o: _shared_rows(("ldmatrix",)), _measure_shared("ldmatrix")
    ),
    "shared": Group(
        "shared loads and stores",
        lambda a, o: _shared_rows(("ld.", "st.")),
        _measure_shared("shared"),
    ),
    "global": Group("cycles of loads and stores", lambda a, o: _cpi_rows(), _measure_cpi),
    "bandwidth": Group("bandwidth", lambda a, o: list(bandwidth.ROWS), bandwidth.measure),
    "layout": Group("fragment layouts", layouts.names, layouts.measure),
}
