"""tcgemm model: what bounds a tile on a GPU, by models with measured costs.

costs        cycles and bytes a clock of each load and store, and of an HMMA
blocking     cycles of the tensor cores and of memory in a step of k, for tiles of a block
roofline     what device memory, L2 and shared memory allow tiles of several sizes
interleave   how far two shared stores of a warp have to lie apart
banks        the conflicts of layouts of shared memory
example      a file of costs, to fill in for another GPU: --gpu FILE

Without --gpu the costs are of this machine's GPU if a probe of it is stored with tcgemm, else of an
RTX 2070.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tcgemm import published
from tcgemm.lab.model import banks, blocking, gpus, plot, roofline
from tcgemm.measure import command_line
from tcgemm.numerics.table import Table

OWN = blocking.TILES[-1]  # of the kernel of the paper


def _costs(costs: gpus.Costs) -> Table:
    own = {
        ("LDG L2", 128): costs.load_global,
        ("LDS", 32): costs.load_shared,
        ("STS", 128): costs.store_shared,
    }
    turing = gpus.TURING[0]
    rows: list[dict[str, Any]] = [
        dict.fromkeys(["instruction", "bytes a warp", "cycles", "B/clk", f"{turing.name} cycles"])
        | {f"{turing.name} B/clk": None, "table V": None}
        | {"instruction": "HMMA.1688", "cycles": costs.mma, f"{turing.name} cycles": turing.mma}
    ]
    for number, name in (("III", "LDG L1"), ("III", "LDG L2"), ("IV", "LDS"), ("IV", "STS")):
        for width, cycles in published.table("000", number)[name].items():
            size, here = 32 * int(width) // 8, own.get((name, int(width)))
            rows.append(
                {
                    "instruction": f"{name}.{width}",
                    "bytes a warp": size,
                    "cycles": here,
                    "B/clk": here and size / here,
                    f"{turing.name} cycles": cycles,
                    f"{turing.name} B/clk": cycles and size / cycles,
                    "table V": published.figure(
                        "000", "V", row=name, column=width, gpu=turing.name
                    ),
                }
            )
    notes = [
        "B/clk: 32 lanes times the bytes of one, over the cycles. The models use the rows with "
        "cycles of this GPU.",
        f"{turing.name}: tables III to V ({gpus.HGEMM}).",
    ]
    return Table(f"Cycles of instructions on {costs.name} ({costs.source})", rows, notes)


def _blocking(costs: gpus.Costs) -> Table:
    rows = []
    for tile in (*blocking.TILES, blocking.CUBLAS):
        padding = 0 if tile is blocking.CUBLAS else blocking.PADDING
        bound = blocking.bound(tile, costs, padding)
        rows.append(
            {
                "tile": {OWN: "own", blocking.CUBLAS: "cuBLAS 10.1"}.get(tile, ""),
                "block": f"{tile.m}x{tile.n}x{tile.k}",
                "warp": f"{tile.wm}x{tile.wn}x{tile.wk}",
                "tensor": int(bound.tensor),
                "memory": int(bound.memory),
                "ratio": bound.tensor / bound.memory,
                "bound by": bound.bound_by,
                "shared KB": bound.shared_bytes // 1024,
                "registers KB": bound.register_bytes // 1024,
                "blocks an SM": bound.blocks,
                "warps an SM": bound.blocks * tile.warps,
                "prefetch": int(blocking.prefetch_cycles(tile, costs)),
            }
        )
    notes = [
        f"The six first tiles are from table VI ({gpus.HGEMM}). Their own tile and that of cuBLAS "
        "10.1 are in table VII, with the same shared memory, blocks and warps.",
        "prefetch: cycles of the products between the load of the next tile and its store, which "
        "hide the load. The paper has 768 for its own tile, with 8 cycles an HMMA.",
    ]
    return Table(f"Cycles of a step of k on {costs.name} ({costs.source})", rows, notes)


def _roofline(costs: gpus.Costs) -> Table:
    rows = roofline.rows(costs)
    for row in rows:
        for name in roofline.roofs(costs):
            row[name] = None if row[name] is None else row[name] / 1e12
    ridges = [
        f"{roofline.ridge(rate, costs.tensor):.0f} a byte of {name}"
        for name, rate in roofline.roofs(costs).items()
        if rate is not None
    ]
    notes = [
        f"To feed the tensor cores a tile needs so many operations: {', '.join(ridges)}.",
        "Shared memory: what the warps of mma.sync read, each for its own tile. wgmma reads the "
        "tile of b once for four warps.",
    ]
    peak = costs.tensor / 1e12
    return Table(f"TFLOP/s of tiles on {costs.name}, peak {peak:.3g} ({costs.source})", rows, notes)


def _interleave(costs: gpus.Costs) -> Table:
    row = {"HMMA between two STS.128": blocking.store_distance(costs), "cuBLAS 10.1": 2}
    title = f"Distance of shared stores on {costs.name} ({costs.source})"
    return Table(title, [row], ["n * CPI(HMMA) >= 4 * CPI(STS.128): four parts share one pipe."])


def _banks(_costs: gpus.Costs) -> Table:
    rows = [
        {
            "layout": name,
            "ldmatrix": banks.ldmatrix(layout),
            "LDS.32 of a fragment": banks.fragment(layout),
            "STS.128 of rows": banks.store_rows(layout, length),
            "another access": None,
        }
        for name, (layout, length) in banks.LAYOUTS.items()
    ]
    rows += [
        dict.fromkeys(rows[0])
        | {"layout": name, "another access": f"{pattern.opcode}: {pattern.ways}"}
        for name, pattern in banks.PATTERNS.items()
    ]
    notes = ["Cycles of the slowest phase; 1 has no conflict. tcgemm's kernels use the swizzles."]
    return Table("Bank conflicts of shared memory", rows, notes)


MODELS: dict[str, Callable[[gpus.Costs], Table]] = {
    "costs": _costs,
    "blocking": _blocking,
    "roofline": _roofline,
    "interleave": _interleave,
    "banks": _banks,
}


def run(arguments: list[str]) -> int:
    """Prints the table of a model."""
    parser = command_line.parser("tcgemm model", __doc__)
    parser.add_argument("model", choices=(*MODELS, "example"))
    parser.add_argument(
        "--gpu", help="a GPU by name, or a JSON file (this GPU if its probe is stored, or RTX 2070)"
    )
    parser.add_argument("--plot", type=Path, help="draw the roofline into this folder, as PNG")
    options: Any = parser.parse_args(arguments)
    if options.model == "example":
        print(gpus.example())
        return 0
    try:
        if options.plot is not None and options.model != "roofline":
            raise ValueError(
                f"--plot draws the roofline, and the model is {options.model}; leave --plot, or "
                "ask for the model roofline."
            )
        costs = gpus.here() if options.gpu is None else gpus.costs(options.gpu)
        print(MODELS[options.model](costs))
        if options.plot is not None:
            print(f"\nwrote {plot.draw(costs, options.plot)}")
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return 0
