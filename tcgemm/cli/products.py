"""The options of `compare` and `tune` that choose products and how their operands are stored."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any

from tcgemm.measure.command_line import comma
from tcgemm.measure.compare.request import WEIGHTS
from tcgemm.measure.operands import DTYPES
from tcgemm.typing import Float8Precision, Granularity, Layout, words

if TYPE_CHECKING:
    import argparse

SHAPES = "MxNxK or BATCHxMxNxK, several with commas"
NAMES = ("dtypes", "layouts", "scales", "precision", "sparse", "weight", "group_size", "device")


def group_of(text: str) -> int | str | None:
    """The group size of a packed weight: a number, "row", or "default"."""
    if text in ("row", "default"):
        return None if text == "row" else text
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no group size; pass a number such as 128, or row")
    return int(text)


def add_options(parser: argparse.ArgumentParser, *, seconds: str, device: str) -> None:
    """Adds the options. `seconds` and `device` are the help of two of them."""
    parser.add_argument("--dtypes", type=comma, help=f"of {', '.join(DTYPES)} (bf16)")
    parser.add_argument("--layouts", type=comma, help=f"of {', '.join(words(Layout))} (TN)")
    parser.add_argument("--scales", choices=words(Granularity), help="scales of float8 operands")
    parser.add_argument(
        "--precision", choices=words(Float8Precision), help="sums of float8 products"
    )
    parser.add_argument("--sparse", action="store_true", help="b is 2:4 sparse")
    parser.add_argument("--weight", choices=WEIGHTS, help="b is a packed weight of this format")
    parser.add_argument(
        "--group-size", type=group_of, default="default", help="of the weight: 128, or row"
    )
    parser.add_argument("--seconds", type=float, help=seconds)
    parser.add_argument("--device", help=device)
    parser.add_argument("--quiet", action="store_true", help="no lines of progress on stderr")


def arguments_of(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of tcgemm.compare and of tcgemm.tune that these options give."""
    choices = {name: getattr(options, name) for name in (*NAMES, "seconds")}
    return choices | {"progress": not options.quiet}
