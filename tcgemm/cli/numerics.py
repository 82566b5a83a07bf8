"""tcgemm numerics: what tensor cores lose, in experiments and for a product.

tables     one product, one sum, one accumulation: tables XII to XV of Sun et al. 2023
chain      a chain of products, each of which multiplies the one before: their figure 17
integers   a million sums of integers, none of which is wrong
outside    partial sums that are added outside of the tensor cores, and the error of long sums
formats    the number formats: their table XI
all        all of these
kernel     the error of one product: 4096 4096 16384 --dtype e4m3 --data uniform

GPUs are emulated, bit for bit, so none is needed. If there is one, it has a column of its own, and
each of its results is compared with the emulator's.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tcgemm import _plots
from tcgemm.cli.explain import dtype_of
from tcgemm.measure import command_line
from tcgemm.measure.machine import facts
from tcgemm.measure.results import commit
from tcgemm.numerics import accumulation, chain, error_report, formats, integers, low_precision
from tcgemm.numerics.data import DISTRIBUTIONS
from tcgemm.numerics.device import Checked, device
from tcgemm.numerics.machine import Machine, emulated
from tcgemm.numerics.table import Table
from tcgemm.typing import Layout, Precision, words

EXPERIMENTS: dict[str, Callable[[Sequence[Machine]], list[Table]]] = {
    "tables": lambda machines: [low_precision.run(machines)],
    "chain": lambda machines: [chain.run(machines)],
    "integers": lambda machines: [integers.run(machines)],
    "outside": lambda machines: [
        accumulation.outside(machines),
        accumulation.long_sums(
            [each.name for each in machines if not isinstance(each, Checked)][-1]
        ),
    ],
    "formats": lambda machines: [formats.run()],
}


def parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    parser = command_line.parser("tcgemm numerics", __doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="experiment")
    for name in (*EXPERIMENTS, "all"):
        command = commands.add_parser(name, help="see above")
        command.add_argument(
            "--gpus",
            default="A100,H200",
            type=lambda text: text.split(","),
            help="emulated GPUs by name, with commas (A100,H200); long sums are of the last",
        )
        command.add_argument(
            "--emulated-only", action="store_true", help="leave out the GPU of this machine"
        )
        command.add_argument("--json", type=Path, help="write the tables and curves to this file")
        command.add_argument("--plot", type=Path, help="draw the curves into this folder, as PNG")
    kernel = commands.add_parser("kernel", help="see above")
    kernel.add_argument("m", type=int, help="rows of the result")
    kernel.add_argument("n", type=int, help="columns of the result")
    kernel.add_argument("k", type=int, help="products in each sum")
    kernel.add_argument("--dtype", type=dtype_of, default=torch.bfloat16, help="of a and b")
    kernel.add_argument(
        "--data",
        default="normal",
        choices=DISTRIBUTIONS,
        help="; ".join(f"{name}: {meaning}" for name, meaning in DISTRIBUTIONS.items()),
    )
    kernel.add_argument("--layout", default="TN", choices=words(Layout))
    kernel.add_argument("--precision", choices=words(Precision))
    kernel.add_argument("--acc-dtype", type=dtype_of, help="of the accumulator")
    kernel.add_argument("--out-dtype", type=dtype_of, help="of the result")
    kernel.add_argument("--seed", type=int, default=0, help="of the random numbers")
    kernel.add_argument("--device", default="H200", help="a GPU by name (H200)")
    kernel.add_argument("--json", type=Path, help="write the report to this file")
    return parser


def _save(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _run_kernel(options: argparse.Namespace) -> None:
    report = error_report(
        (options.m, options.n, options.k),
        **{name: getattr(options, name) for name in ("precision", "acc_dtype", "out_dtype")},
        **{name: getattr(options, name) for name in ("dtype", "data", "layout", "seed", "device")},
    )
    print(report)
    if options.json:
        _save(options.json, report.to_dict())


def run(arguments: list[str]) -> int:
    """Prints the tables of the experiments, or the report of a product."""
    command = parser()
    options = command.parse_args(arguments)
    try:
        if options.command == "kernel":
            _run_kernel(options)
            return 0
        machines: list[Machine] = [emulated(name) for name in options.gpus]
        if torch.cuda.is_available() and not options.emulated_only:
            machines.append(device())
        if options.plot:
            _plots.make_folder(options.plot)
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        command.error(str(error))
    gpus = [machine.name for machine in machines]
    names = EXPERIMENTS if options.command == "all" else [options.command]
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        for number, table in enumerate(EXPERIMENTS[name](machines)):
            print(table, end="\n\n", flush=True)
            tables.setdefault(name, []).append(table.facts())
            if options.plot and table.curves:
                table.draw(options.plot / _plots.file_name(f"{name}{number or ''}", *gpus))
    comparisons = [machine for machine in machines if isinstance(machine, Checked)]
    for machine in comparisons:
        print(machine.sentence())
    if options.json:
        header = facts("cuda" if comparisons else "cpu") | {"commit": commit()}
        counts = {machine.name: machine.counts for machine in comparisons}
        _save(options.json, {"header": header, "compared": counts, **tables})
    return 1 if any(machine.counts[1] for machine in comparisons) else 0
