"""python -m tcgemm tune: measures which kernels are fastest on this GPU, for later processes.

    python -m tcgemm tune --shapes 16x4096x4096,64x4096x4096 --dtypes bf16,e4m3
    python -m tcgemm tune --model package.module:function --rows 1,16,64
    python -m tcgemm tune --show                          what is stored; needs no GPU
    python -m tcgemm tune --clear                         removes it

The function of --model takes no argument and returns a torch.nn.Module. Python finds its module as
`import` does, also in the current folder. The file is in the folder TCGEMM_CACHE_DIR.
"""

import argparse
import importlib
import sys
from typing import Any

import torch

import tcgemm
from tcgemm import tuning
from tcgemm.comparison.weights import WEIGHTS, group_of
from tcgemm.testing.operands import DTYPES
from tcgemm.typing import Float8Precision, Granularity, Layout, words


def comma(text: str) -> list[str]:
    """The words of a list that commas separate."""
    return [word for word in text.split(",") if word]


def numbers(text: str) -> list[int]:
    """The whole numbers of a list that commas separate."""
    return [int(word) for word in comma(text)]


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of a command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tcgemm tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument(
        "--shapes", type=comma, help="MxNxK or BATCHxMxNxK, several joined by commas"
    )
    actions.add_argument("--model", help="MODULE:FUNCTION, which returns a torch.nn.Module")
    actions.add_argument("--show", action="store_true", help="print what is stored")
    actions.add_argument("--clear", action="store_true", help="remove what is stored")
    parser.add_argument("--rows", type=numbers, help="rows of a layer's input, with --model")
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
    parser.add_argument("--seconds", type=float, help="time of each of the fastest kernels (0.3)")
    parser.add_argument("--device", help="the GPU (the current one)")
    parser.add_argument("--quiet", action="store_true", help="no lines of progress on stderr")
    return parser.parse_args(arguments)


def model_of(text: str) -> Any:
    """The model that a function of a module returns."""
    name, _, function = text.partition(":")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(name) if name and function else None
        model = getattr(module, function)() if module else None
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"tcgemm tune: --model is {text!r}, but cannot be found: {error}; pass "
            "MODULE:FUNCTION, such as models:small."
        ) from None
    finally:
        sys.path.remove("")
    if not isinstance(model, torch.nn.Module):
        raise RuntimeError(
            f"tcgemm tune: --model is {text!r}, but gives a {type(model).__name__}; pass "
            "MODULE:FUNCTION of a function that returns a torch.nn.Module."
        )
    return model


def run(arguments: list[str]) -> int:
    """Prints the table; 1 if a product could not be measured, or a kernel's result is wrong."""
    options = parse(arguments)
    if options.show:
        print(tuning.stored())
        return 0
    if options.clear:
        paths = tuning.clear()
        print(f"removed {len(paths)} files from {tuning.folder()}")
        return 0
    result = tcgemm.tune(
        options.shapes or model_of(options.model),
        rows=options.rows,
        dtypes=options.dtypes,
        layouts=options.layouts,
        scales=options.scales,
        precision=options.precision,
        sparse=options.sparse,
        weight=options.weight,
        group_size=options.group_size,
        seconds=options.seconds,
        device=options.device,
        progress=not options.quiet,
    )
    print(result)
    return 1 if any(row["why"] or row["wrong"] for row in result.rows) else 0
