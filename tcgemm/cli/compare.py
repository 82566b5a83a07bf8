"""tcgemm compare: products of given shapes beside torch's, as a table."""

import argparse
from pathlib import Path

import tcgemm
from tcgemm.cli import products
from tcgemm.measure import command_line
from tcgemm.measure.compare import Comparison, load
from tcgemm.measure.compare.request import BASELINES
from tcgemm.measure.results import is_wrong
from tcgemm.typing import Activation, words

EXAMPLES = """
examples:
  --shapes 4096x4096x4096,16x28672x4096 --dtypes bf16,e4m3 --layouts TN,NN
  --shapes 32x512x512x512 --dtypes f16 --against torch          (batch, m, n, k)
  --shapes 4096x14336x4096 --bias --activation gelu --save h200.json --plot h200.png
  --load h200.json                                              prints a saved table
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options that the arguments give."""
    parser = command_line.parser("tcgemm compare", __doc__, epilog=EXAMPLES)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--shapes", type=command_line.comma, help=products.SHAPES)
    source.add_argument("--load", type=Path, help="a saved file: print it and measure nothing")
    parser.add_argument(
        "--against", type=command_line.comma, default=BASELINES, help=" and ".join(BASELINES)
    )
    parser.add_argument("--bias", action="store_true", help="add a bias")
    parser.add_argument("--activation", choices=words(Activation))
    parser.add_argument("--residual", action="store_true", help="add a residual")
    products.add_options(
        parser,
        seconds="time of a candidate (0.3; on the CPU 0.1)",
        device="cuda or cpu (cuda where there is one)",
    )
    parser.set_defaults(dtypes="bf16", layouts="TN")
    parser.add_argument("--save", type=Path, help="write the result to this JSON file")
    parser.add_argument("--plot", type=Path, help="draw the result into this picture")
    return parser.parse_args(arguments)


def run(arguments: list[str]) -> int:
    """Prints the table; 1 if a case failed or its result is wrong."""
    options = parse(arguments)
    if options.load:
        return _show(load(options.load), options)
    names = ("against", "bias", "activation", "residual")
    own = {name: getattr(options, name) for name in names}
    try:
        result = tcgemm.compare(options.shapes, **own, **products.arguments_of(options))
    except command_line.Interrupted as stopped:
        _show(stopped.result, options)
        raise
    return _show(result, options)


def _show(result: Comparison, options: argparse.Namespace) -> int:
    """Prints, saves and draws the result."""
    if options.save:
        result.save(options.save)
    print(result)
    if options.plot and result.rows:
        result.plot().figure.savefig(options.plot)
    return 1 if any(row["us"] is None or is_wrong(row) for row in result.rows) else 0
