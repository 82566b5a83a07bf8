"""tcgemm tune: measures which kernels are fastest on this GPU, for later processes.

    tcgemm tune --shapes 16x4096x4096,64x4096x4096 --dtypes bf16,e4m3
    tcgemm tune --model package.module:function --rows 1,16,64
    tcgemm tune --show                          what is stored; needs no GPU
    tcgemm tune --clear                         removes it

The function of --model takes no argument and returns a torch.nn.Module. Python finds its module as
`import` does, also in the current folder. The file is in the folder TCGEMM_CACHE_DIR.
"""

import pkgutil
import sys
from typing import Any

import torch

import tcgemm
from tcgemm.cli import products
from tcgemm.measure import command_line, tune


def numbers(text: str) -> list[int]:
    """The whole numbers of a list that commas separate."""
    return [int(word) for word in command_line.comma(text)]


def model_of(text: str) -> Any:
    """The model that a function of a module returns."""
    sys.path.insert(0, "")
    try:
        function = pkgutil.resolve_name(text)
        model = function() if callable(function) else function
    except (ImportError, AttributeError, ValueError) as error:
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
    parser = command_line.parser("tcgemm tune", __doc__)
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--shapes", type=command_line.comma, help=products.SHAPES)
    actions.add_argument("--model", help="MODULE:FUNCTION, which returns a torch.nn.Module")
    actions.add_argument("--show", action="store_true", help="print what is stored")
    actions.add_argument("--clear", action="store_true", help="remove what is stored")
    parser.add_argument("--rows", type=numbers, help="rows of a layer's input, with --model")
    products.add_options(
        parser,
        seconds="time of each of the fastest kernels (0.3)",
        device="the GPU (the current one)",
    )
    options = parser.parse_args(arguments)
    if options.show:
        print(tune.stored())
        return 0
    if options.clear:
        paths = tune.clear()
        print(f"removed {len(paths)} files from {tune.folder()}")
        return 0
    what = options.shapes or model_of(options.model)
    try:
        result = tcgemm.tune(what, rows=options.rows, **products.arguments_of(options))
    except command_line.Interrupted as stopped:
        print(stopped.result)
        raise
    print(result)
    return 1 if any(row["why"] or row["wrong"] for row in result.rows) else 0
