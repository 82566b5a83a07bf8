"""tcgemm probe: latency and rate of each instruction of the tensor cores and memories.

mma         mma.sync over warps and independent instructions, and the latency of chains
sparse      mma.sp
wgmma       wgmma and wgmma.sp over n, on compute capability 9.0
wmma        wmma, and what ptxas makes of it
ldmatrix    ldmatrix: latency, rate and bank conflicts
shared      loads and stores of shared memory with conflicts of up to 32 ways
global      clocks of a load or store of one warp, from L1, L2 and shared memory
bandwidth   device memory and L2
layout      which lane and register holds which element
all         all of these

`instructions` alone prints what ptxas makes of each instruction, by architecture, and `generations`
what the tensor cores of each architecture have. They need no GPU.
The tables are beside figures of Sun et al. 2023 and of Yan, Wang and Chu 2020. Without a GPU the
command prints what it would measure, and results that are stored with tcgemm.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tcgemm.lab import store
from tcgemm.lab.probe import checks, generations, plot, tables
from tcgemm.lab.probe.groups import GROUPS, ILPS, WARPS, Options
from tcgemm.lab.probe.kernels_mma import CHAINS
from tcgemm.lab.probe.measure import (
    check_chains,
    check_groups,
    check_numbers,
    expand,
    load,
    narrow,
    plan,
)
from tcgemm.lab.probe.measure import run as measure
from tcgemm.measure import command_line
from tcgemm.measure.command_line import Interrupted

MOST = 5  # sentences of a check
WITHOUT_GPU = {"instructions": tables.instructions, "generations": generations.table}


def numbers(text: str) -> tuple[int, ...]:
    """ "1,2,4" or "1..8"."""
    try:
        values: list[int] = []
        for part in text.split(","):
            first, dots, last = part.partition("..")
            values += range(int(first), int(last) + 1) if dots else [int(part)]
        return tuple(values)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of integers; expected one such as 1,2,4 or 1..8"
        ) from None


def parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    parser = command_line.parser("tcgemm probe", __doc__)
    parser.add_argument("group", nargs="*", help="one or more of the above (all)")
    parser.add_argument(
        "--row", help="a type such as f16, a shape such as m16n8k16, or a name; stored tables too"
    )
    parser.add_argument("--warps", type=numbers, default=WARPS, help="of a block (1,2,4,..,32)")
    parser.add_argument(
        "--ilp", type=numbers, default=ILPS, help="independent instructions of a warp (1..8)"
    )
    parser.add_argument("--chain", help="c (sums), a0, a1 (the result is the next a), or several")
    parser.add_argument("--json", type=Path, help="write the records to this file, as they come")
    parser.add_argument("--resume", action="store_true", help="keep the records of --json's file")
    parser.add_argument("--plot", type=Path, help="draw the rates into this folder, as PNG")
    parser.add_argument("--stored", type=Path, help="print this file's records, measure nothing")
    return parser


def _show(results: dict[str, Any], groups: Sequence[str], folder: Path | None) -> bool:
    """Prints tables and complaints; True if no limit is broken."""
    for table in tables.of(results, groups):
        print(table, end="\n\n", flush=True)
    faults = checks.sentences(results, checks.LIMITS, MOST)
    differences = checks.sentences(results, checks.PATTERNS, MOST)
    if faults:
        print("These contradict the hardware or themselves:", *faults, sep="\n  ", end="\n\n")
    if differences:
        print(
            "This GPU differs from others, or from what was published:",
            *differences,
            sep="\n  ",
            end="\n\n",
        )
    if folder is not None:
        for path in plot.draw(results, groups, folder):
            print(f"wrote {path}")
    return not faults


def _of_row(results: dict[str, Any], groups: Sequence[str], row: str | None) -> dict[str, Any]:
    return results if row is None else narrow(results, groups, row)


def _without_gpu(groups: Sequence[str], options: Options, folder: Path | None) -> None:
    print("torch finds no CUDA GPU. On a GPU of compute capability 9.0 this would measure:\n")
    rows = plan("Hopper", groups, options)
    for group in groups:
        names = [name for row_group, name in rows if row_group == group]
        if names:
            print(f"  {GROUPS[group].title}: {', '.join(names)}")
    files = store.results("probe")
    if not files:
        print("\nNo results are stored with this tcgemm.")
    for results in files.values():
        print()
        _show(_of_row(expand(results), groups, options.row), groups, folder)


def run(arguments: list[str]) -> int:
    """Measures and prints; 1 if a check of the results fails."""
    command = parser()
    options: Any = command.parse_args(arguments)
    try:
        if len(options.group) == 1 and options.group[0] in WITHOUT_GPU:
            print(WITHOUT_GPU[options.group[0]]())
            return 0
        groups = check_groups(options.group)
        chain = check_chains(options.chain.split(",") if options.chain else CHAINS)
        warps = check_numbers("warps", options.warps, 32)
        ilps = check_numbers("ilp", options.ilp, 8)
        if options.resume and options.json is None:
            raise ValueError("--resume needs the file of the records: --json FILE.")
        if options.stored is not None:
            _show(_of_row(load(options.stored), groups, options.row), groups, options.plot)
            return 0
        if not torch.cuda.is_available():
            _without_gpu(groups, Options(options.row, warps, ilps, chain), options.plot)
            return 0
        try:
            results = measure(
                groups,
                row=options.row,
                warps=warps,
                ilp=ilps,
                chain=chain,
                path=options.json,
                resume=options.resume,
            )
        except Interrupted as stopped:
            _show(stopped.result, groups, options.plot)
            raise
        return 0 if _show(results, groups, options.plot) else 1
    except BrokenPipeError:
        raise
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        command.error(str(error))
