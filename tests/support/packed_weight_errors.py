"""The sentences of the operator packed_mm.

A row is a call and pieces of its sentence, as in ops/test_errors.py, which also sees to it that
there is a row for each.
"""

import pytest
import torch

import tcgemm  # noqa: F401  (the fakes)

from support.cases import BF16, F16, F32, U8
from support.error_asserts import t

OPS = torch.ops.tcgemm
N, K = 48, 64
BYTES = 256 + 4096 + 512  # of a weight of one block, with one scale a row


def call(a=None, packed=None, n=N, weight_format="int4", group_size=0, zeros="none"):
    a = t(3, K, dtype=F16) if a is None else a
    packed = t(BYTES, dtype=U8) if packed is None else packed
    words = {"weight_format": weight_format, "group_size": group_size, "zeros": zeros}
    return OPS.packed_mm(a, packed, n=n, **words)


def strided():
    return t(2 * BYTES, dtype=U8)[::2]


def unaligned():
    return t(BYTES + 8, dtype=U8)[8:]


WORDS = {
    "weight_format": (
        lambda: call(weight_format="int3"),
        [
            'tcgemm: weight_format is "int3", but there are "int4", "table4", "int8" and "e4m3"; '
            "pass one of these."
        ],
    ),
    "zeros": (
        lambda: call(zeros="some"),
        [
            'tcgemm: zeros is "some", but there are "none", "points" and "offsets"; pass one of '
            "these."
        ],
    ),
    "zeros of a table": (
        lambda: call(weight_format="table4", zeros="points"),
        [
            'tcgemm: zeros is "points", but only "int4" has zero points and offsets, and '
            'weight_format is "table4"; pass zeros="none".'
        ],
    ),
    "n": (
        lambda: call(n=-1),
        ["tcgemm: n is -1, but is the number of rows of the weight; pass that."],
    ),
    "group_size": (
        lambda: call(group_size=48),
        [
            "tcgemm: group_size is 48, but can be 16, 32, a multiple of 64 up to K = 64, or 0 for "
            "a whole row; pass one of these."
        ],
    ),
    "a long group": (lambda: call(group_size=128), ["group_size is 128", "up to K = 64"]),
}
TENSORS = {
    "a number": (
        lambda: call(a=t(dtype=BF16)),
        [
            "tcgemm: a must be at least a vector (K,), but has shape (); multiply by a number "
            "with *."
        ],
    ),
    "a number that takes part in autograd": (
        lambda: call(a=t(dtype=BF16).requires_grad_()),
        ["tcgemm: a must be at least a vector (K,), but has shape ()"],
    ),
    "float32": (
        lambda: call(a=t(3, K, dtype=F32)),
        [
            "tcgemm: a is torch.float32, but a packed weight is multiplied by torch.float16 or "
            "torch.bfloat16; convert a with .to(...)."
        ],
    ),
    "bytes": (
        lambda: call(packed=t(BYTES - 1, dtype=U8)),
        [
            "tcgemm: packed_b must be contiguous torch.uint8 of shape (4864,), aligned to 16 "
            'bytes, for a weight of 48 rows and 64 columns in "int4", but is torch.uint8 of shape '
            "(4863,); pass what PackedWeight.arranged() returns."
        ],
    ),
    "dtype of bytes": (
        lambda: call(packed=t(BYTES, dtype=F32)),
        ["packed_b must be contiguous torch.uint8", "but is torch.float32 of shape (4864,)"],
    ),
    "strides of bytes": (
        lambda: call(packed=strided()),
        ["packed_b must be contiguous", "(4864,)"],
    ),
    "address of bytes": (lambda: call(packed=unaligned()), ["aligned to 16 bytes", "(4864,)"]),
    "other rows": (
        lambda: call(n=200),
        ["packed_b must be", "of shape (9472,)", "a weight of 200 rows and 64 columns"],
    ),
}

TABLE = [
    pytest.param(call, pieces, id=name) for name, (call, pieces) in {**WORDS, **TENSORS}.items()
]
