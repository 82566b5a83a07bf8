"""python -m tcgemm explain: the plan for one product on a GPU, from its sizes alone."""

import argparse

import torch

import tcgemm
from tcgemm import dtypes
from tcgemm.testing.operands import LAYOUTS, is_transposed


def operands(arguments: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """a (M, K) and b (K, N) on the meta device, in the memory order that the layout names."""
    types = {row.name: row.torch for row in dtypes.TABLE}
    batch = (arguments.batch,) if arguments.batch > 1 else ()
    common = {"dtype": types[arguments.dtype], "device": "meta"}

    def operand(rows: int, columns: int, transposed: bool) -> torch.Tensor:
        if transposed:
            return torch.empty(*batch, columns, rows, **common).mT
        return torch.empty(*batch, rows, columns, **common)

    m, n, k = arguments.m, arguments.n, arguments.k
    transposed_a, transposed_b = is_transposed(arguments.layout)
    return operand(m, k, transposed_a), operand(k, n, transposed_b)


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tcgemm explain", description=__doc__)
    for size in "mnk":
        parser.add_argument(size, type=int)
    parser.add_argument("--dtype", default="bf16", choices=[row.name for row in dtypes.TABLE])
    parser.add_argument("--layout", default="TN", choices=LAYOUTS)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", help="f32: highest, high, medium; float8: promoted, fast")
    parser.add_argument("--device", help="a GPU by name, such as H200 or A100; default H200")
    parser.add_argument("--kernel", help="only kernels whose name contains this")
    options = parser.parse_args(arguments)
    a, b = operands(options)
    for question in (tcgemm.explain, tcgemm.check_layout):
        chosen = {"precision": options.precision, "kernel": options.kernel}
        print(question(a, b, device=options.device, **chosen))
    return 0
