"""tcgemm explain: the plan for one product on a GPU, from its sizes alone."""

import argparse
import json
from typing import Any

import torch

import tcgemm
from tcgemm import PackedWeight, dtypes
from tcgemm.cli.products import group_of
from tcgemm.measure.compare.request import WEIGHTS
from tcgemm.measure.operands import is_transposed
from tcgemm.operands.quant.quantize import scale_shape
from tcgemm.typing import Activation, Granularity, Layout, Precision, words

GRANULARITIES: tuple[Granularity, ...] = words(Granularity)
ZERO_POINTS: tuple[Granularity, ...] = ("tensor", "row")
_ADDENDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32)


def dtype_of(word: str) -> torch.dtype:
    """A dtype by torch's name or by tcgemm's, for argparse."""
    for dtype, name in dtypes.NAMES.items():
        if name == dtypes.short_name(word):
            return dtype
    names = ", ".join(f"{name} ({str(dtype)[6:]})" for dtype, name in dtypes.NAMES.items())
    raise argparse.ArgumentTypeError(f"{word!r} is no dtype; there are {names}")


def parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    parser = argparse.ArgumentParser(prog="tcgemm explain", description=__doc__)
    parser.add_argument("m", type=int, help="rows of a and of the result")
    parser.add_argument("n", type=int, help="columns of b and of the result")
    parser.add_argument(
        "k", type=int, help="columns of a and rows of b, which the product sums over"
    )
    operands = parser.add_argument_group("operands")
    operands.add_argument(
        "--dtype",
        type=dtype_of,
        default=torch.bfloat16,
        help="of a and b, by a name of torch or of tcgemm: bfloat16, bf16, e4m3, ...",
    )
    operands.add_argument("--dtype-b", type=dtype_of, help="of b, if it is another")
    operands.add_argument(
        "--layout",
        default="TN",
        choices=words(Layout),
        help="first letter T: b is stored as (N, K); second letter T: a is stored as (K, M)",
    )
    operands.add_argument("--batch", type=int, default=1, help="number of products")
    operands.add_argument(
        "--sparse", choices=("a", "b"), help="the operand that is 2:4 sparse, K-major"
    )
    operands.add_argument(
        "--weight", choices=WEIGHTS, help="b is a packed weight of this format, whatever the layout"
    )
    operands.add_argument(
        "--group-size", type=group_of, default="default", help="of the weight: 128, or row"
    )
    for name, axis in (("a", "row"), ("b", "column")):
        operands.add_argument(
            f"--scale-{name}",
            choices=GRANULARITIES,
            help=f"scales of {name}: one, one a {axis} (row), or of blocks",
        )
        operands.add_argument(
            f"--zero-{name}", choices=ZERO_POINTS, help=f"zero points of {name}, for int8"
        )
    epilogue = parser.add_argument_group("epilogue")
    epilogue.add_argument("--alpha", type=float, default=1.0, help="multiplies the product")
    epilogue.add_argument("--c", action="store_true", help="add beta * c, as addmm does")
    epilogue.add_argument("--beta", type=float, default=1.0, help="multiplies c")
    epilogue.add_argument("--bias", action="store_true", help="add a bias (N,)")
    epilogue.add_argument("--activation", choices=words(Activation))
    epilogue.add_argument("--residual", action="store_true", help="add a residual (M, N)")
    epilogue.add_argument("--scale-out", action="store_true", help="multiply the result")
    epilogue.add_argument("--amax", action="store_true", help="return the largest magnitude too")
    epilogue.add_argument("--out-dtype", type=dtype_of, help="of the result")
    sums = parser.add_argument_group("sums and the GPU")
    sums.add_argument("--acc-dtype", type=dtype_of, help="of the accumulator")
    sums.add_argument(
        "--precision",
        choices=words(Precision),
        help="f32: highest, high, medium, prepared; float8: promoted, fast",
    )
    sums.add_argument(
        "--batch-invariant",
        action="store_true",
        help="the bits of a row do not depend on the number of rows",
    )
    sums.add_argument("--device", help="a GPU by name, such as H200 or A100; default H200")
    sums.add_argument(
        "--kernel",
        help="only kernels whose name contains this; @4: in clusters of four; @2x2: two by two; "
        "^T: with a and b swapped",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the fields of the plan, and the text about the layouts, as a JSON object",
    )
    return parser


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends with a sentence if options contradict each other."""
    if options.weight is None and options.group_size != "default":
        parser.error("--group-size belongs to a packed weight; add --weight, such as int4.")
    for name in ("sparse", "dtype_b", "scale_b", "zero_b"):
        if options.weight is not None and getattr(options, name) not in (None, "a"):
            option = name.replace("_", "-")
            parser.error(f"--weight says what b is, and so does --{option}; leave one of them out.")


def operands(options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor | PackedWeight]:
    """a (M, K) and b (K, N) on the meta device, in the memory order that the layout names."""
    batch = (options.batch,) if options.batch > 1 else ()

    def operand(
        name: str, rows: int, columns: int, transposed: bool, dtype: torch.dtype
    ) -> torch.Tensor:
        if options.sparse == name:  # its pattern lies along K, whatever the layout
            along_k = (rows, columns) if name == "a" else (columns, rows)
            w = tcgemm.compress24(torch.empty(along_k, dtype=dtype, device="meta"), prune=True)
            return w if name == "a" else w.t()
        if transposed:
            return torch.empty(*batch, columns, rows, dtype=dtype, device="meta").mT
        return torch.empty(*batch, rows, columns, dtype=dtype, device="meta")

    m, n, k = options.m, options.n, options.k
    transposed_a, transposed_b = is_transposed(options.layout)
    a = operand("a", m, k, transposed_a, options.dtype)
    if options.weight is not None:
        w = torch.empty(n, k, dtype=options.dtype, device="meta")
        return a, tcgemm.pack_weight(w, options.weight, options.group_size).t()
    return a, operand("b", k, n, transposed_b, options.dtype_b or options.dtype)


def epilogue(options: argparse.Namespace) -> dict[str, Any]:
    """The other arguments of the product, with tensors on the meta device."""
    m, n, k = options.m, options.n, options.k
    batch = (options.batch,) if options.batch > 1 else ()
    result = options.out_dtype or dtypes.result(options.dtype)
    addend = result if result in _ADDENDS else torch.float32

    def tensor(exists: bool, *shape: int, dtype: torch.dtype) -> torch.Tensor | None:
        return torch.empty(shape, dtype=dtype, device="meta") if exists else None

    def constant(
        granularity: Granularity | None, rows: int, transposed: bool, dtype: torch.dtype
    ) -> torch.Tensor | None:
        if granularity is None:
            return None
        shape = scale_shape((*batch, rows, k), granularity)
        operand = torch.empty(shape, dtype=dtype, device="meta")
        return operand.mT if transposed and operand.dim() > 1 else operand

    return {
        "alpha": options.alpha,
        "beta": options.beta,
        "c": tensor(options.c, *batch, m, n, dtype=addend),
        "bias": tensor(options.bias, n, dtype=addend),
        "residual": tensor(options.residual, *batch, m, n, dtype=addend),
        "activation": options.activation,
        "scale_a": constant(options.scale_a, m, False, torch.float32),
        "scale_b": constant(options.scale_b, n, True, torch.float32),
        "zero_a": constant(options.zero_a, m, False, torch.int32),
        "zero_b": constant(options.zero_b, n, True, torch.int32),
        "scale_out": tensor(options.scale_out, dtype=torch.float32),
        "amax": options.amax,
        "out_dtype": options.out_dtype,
        "acc_dtype": options.acc_dtype,
        "precision": options.precision,
        "batch_invariant": options.batch_invariant,
    }


def run(arguments: list[str]) -> int:
    """Prints the plan and the layouts of the operands."""
    command = parser()
    options = command.parse_args(arguments)
    check(command, options)
    a, b = operands(options)
    plan, layouts = (
        question(a, b, **epilogue(options), device=options.device, kernel=options.kernel)
        for question in (tcgemm.explain, tcgemm.check_layout)
    )
    if options.json:
        print(json.dumps(plan.fields | {"layouts": layouts.splitlines()}, indent=1))
    else:
        print(plan, layouts, sep="\n")
    return 0
