"""The sets packed and low_bits: products with packed weights, of int4 and of bits.

packed     16-bit x with a packed weight, beside torch and tcgemm with the weight in 16 bits, and
           beside torch's int4 product
low_bits   int4 beside int8, and each operation of bits; a multiply-add counts as two operations
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from tcgemm.measure.case import Case
from tcgemm.measure.run import Product
from tcgemm.typing import BinaryOperation, words

WEIGHTS = ((28672, 4096), (4096, 14336), (4096, 4096))  # N x K
# {format and the elements of a scale: rows of x}
FORMATS = {
    "int4-128": (1, 4, 16, 32, 64, 128, 512, 2048, 8192),
    "int8-row": (1, 16),
    "e4m3-row": (1, 16),
    "nf4-64": (1, 16),
    "mxfp4-32": (1, 16),
}
INT4 = (2048, 4096, 8192)  # of m, n and k
BITS = ((8192, 8192), (8192, 65536))  # m and n, k


SETS = {
    "packed": [
        Case("mm", "bf16", "TN", m, n, k, epilogue=f"packed-{format}", self_baseline="dense")
        for format, rows in FORMATS.items()
        for n, k in WEIGHTS
        for m in rows
    ],
    "low_bits": [
        *(Case("mm", "s4", "TN", size, size, size) for size in INT4),
        *(
            Case("mm", "b1", "TN", size, size, k, epilogue=operation)
            for size, k in BITS
            for operation in words(BinaryOperation)
        ),
    ],
}


def jobs(set_name: str, options: argparse.Namespace) -> list[Product]:
    """The jobs of a set. --max-size limits the cases to multiples of 128."""
    cases = [replace(case, set=set_name, kernel=options.kernel) for case in SETS[set_name]]
    if options.max_size:
        limit = max(128, options.max_size // 128 * 128)
        cases = [case.limited(limit) for case in cases]
    return [Product(case) for case in dict.fromkeys(cases)]
