"""Products of int4 and of bits: int4 beside int8, and the rate of each operation of bits.

    random operands -> one CUDA graph a candidate -> medians and quartiles in microseconds

A multiply-add counts as two operations, of bits too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tcgemm
from benchmarks.packed_weights import time_calls
from tcgemm.measure import command_line, machine, results_file
from tcgemm.operands.integers.binary import OPERATIONS

INT4 = (2048, 4096, 8192)  # of m, n and k
BITS = ((8192, 8192), (8192, 65536))  # m and n, k


def int4_calls(size: int) -> dict[str, Callable[[int], Any]]:
    a, b = (torch.randint(-8, 8, (size, size), dtype=torch.int8, device="cuda") for _ in range(2))
    int4_a, int4_b = tcgemm.Int4Tensor.from_int8(a), tcgemm.Int4Tensor.from_int8(b)
    out = torch.empty(size, size, dtype=torch.int32, device="cuda")
    return {
        "s8": lambda i: tcgemm.mm(a, b.t(), out=out),
        "s4": lambda i: tcgemm.mm(int4_a, int4_b.t(), out=out),
    }


def bit_calls(size: int, k: int) -> dict[str, Callable[[int], Any]]:
    a, b = (
        tcgemm.BinaryTensor.from_bool(torch.rand(size, k, device="cuda") > 0.5) for _ in range(2)
    )
    out = torch.empty(size, size, dtype=torch.int32, device="cuda")
    return {
        operation: lambda i, operation=operation: tcgemm.binary_mm(a, b.t(), operation, out=out)
        for operation in OPERATIONS
    }


def measure(kind: str, size: int, k: int, ms: float) -> dict[str, Any]:
    calls = int4_calls(size) if kind == "int4" else bit_calls(size, k)
    row = {"kind": kind, "m": size, "n": size, "k": k, **time_calls(calls, 2, ms)}
    operations = 2.0 * size * size * k
    rates = (
        f"{name} {us:.1f} us, {operations / us / 1e6:.0f} TOP/s"
        for name, (_, us, _) in row["us"].items()
    )
    print(f"{kind} {size} x {size} x {k}: " + "; ".join(rates), flush=True)
    return row


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser("benchmarks low_bits", __doc__)
    parser.add_argument("--out", type=Path, help="the file of results; without it only a table")
    parser.add_argument("--commit", help="the measured commit")
    parser.add_argument("--ms", type=float, default=60.0, help="of a candidate (60)")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("torch finds no CUDA GPU, and these products are measured on one.")
        return 1
    torch.manual_seed(0)
    rows = [measure("int4", size, size, options.ms) for size in INT4]
    rows += [measure("bits", size, k, options.ms) for size, k in BITS]
    if options.out:
        header = {**machine.facts("cuda"), "commit": options.commit, "ms": options.ms}
        results_file.write(options.out, {"header": header, "rows": rows})
    return 0
