"""python -m tcgemm compare: products of given shapes beside torch's, as a table."""

import argparse
from pathlib import Path

import tcgemm
from tcgemm.comparison import Comparison, load
from tcgemm.comparison.request import BASELINES, SCALES
from tcgemm.comparison.result import is_wrong
from tcgemm.comparison.weights import WEIGHTS, group_of
from tcgemm.testing.operands import DTYPES
from tcgemm.typing import Activation, Float8Precision, Layout, words

EXAMPLES = """
examples:
  --shapes 4096x4096x4096,16x28672x4096 --dtypes bf16,e4m3 --layouts TN,NN
  --shapes 32x512x512x512 --dtypes f16 --against torch          (batch, m, n, k)
  --shapes 4096x14336x4096 --bias --activation gelu --save h200.json --plot h200.png
  --load h200.json                                              prints a saved table
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options that the arguments give."""
    parser = argparse.ArgumentParser(
        prog="python -m tcgemm compare",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def comma(text: str) -> list[str]:
        return [part for part in text.split(",") if part]

    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--shapes", type=comma, help="MxNxK or BATCHxMxNxK, several with commas")
    source.add_argument("--load", type=Path, help="a saved file: print it and measure nothing")
    parser.add_argument("--dtypes", type=comma, default="bf16", help=f"of {', '.join(DTYPES)}")
    parser.add_argument(
        "--layouts", type=comma, default="TN", help=f"of {', '.join(words(Layout))}"
    )
    parser.add_argument("--against", type=comma, default=BASELINES, help=" and ".join(BASELINES))
    parser.add_argument("--bias", action="store_true", help="add a bias")
    parser.add_argument("--activation", choices=words(Activation))
    parser.add_argument("--residual", action="store_true", help="add a residual")
    parser.add_argument("--scales", choices=SCALES, help="scales of float8 operands")
    parser.add_argument(
        "--precision", choices=words(Float8Precision), help="sums of float8 products"
    )
    parser.add_argument("--sparse", action="store_true", help="b is 2:4 sparse")
    parser.add_argument("--weight", choices=WEIGHTS, help="b is a packed weight of this format")
    parser.add_argument(
        "--group-size", type=group_of, default="default", help="of the weight: 128, or row"
    )
    parser.add_argument("--seconds", type=float, help="time of a candidate (0.3; on the CPU 0.1)")
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--save", type=Path, help="write the result to this JSON file")
    parser.add_argument("--plot", type=Path, help="draw the result into this picture")
    parser.add_argument("--quiet", action="store_true", help="no lines of progress on stderr")
    return parser.parse_args(arguments)


def measured(options: argparse.Namespace) -> Comparison:
    """Measures with these options."""
    return tcgemm.compare(
        options.shapes,
        dtypes=options.dtypes,
        layouts=options.layouts,
        against=options.against,
        bias=options.bias,
        activation=options.activation,
        residual=options.residual,
        scales=options.scales,
        precision=options.precision,
        sparse=options.sparse,
        weight=options.weight,
        group_size=options.group_size,
        seconds=options.seconds,
        device=options.device,
        progress=not options.quiet,
    )


def run(arguments: list[str]) -> int:
    """Prints the table; 1 if a case failed or its result is wrong."""
    options = parse(arguments)
    result = load(options.load) if options.load else measured(options)
    if options.save:
        result.save(options.save)
    print(result)
    if options.plot:
        result.plot().figure.savefig(options.plot)
    return 1 if any(row["us"] is None or is_wrong(row) for row in result.rows) else 0
