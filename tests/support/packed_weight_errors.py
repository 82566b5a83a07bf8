"""The sentences of the operators packed_mm and _pack_weight.

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
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
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


def pack(w=None, book=None, global_scale=None, format="int4", size=32, limit=7.0, **options):
    w = t(4, 64) if w is None else w
    scale = options.pop("scale_type", "float32")
    return OPS._pack_weight(w, book, global_scale, format, size, limit, scale, **options)


WORDS_OF_PACKING = {
    "format": (
        lambda: pack(format="int5"),
        [
            'tcgemm._pack_weight: format is "int5", but there are "int4", "table4", "int8" and '
            '"e4m3"; pass one of these.'
        ],
    ),
    "scale_type": (
        lambda: pack(scale_type="float8"),
        [
            'tcgemm._pack_weight: scale_type is "float8", but there are "float32", "float16", '
            '"bfloat16", "e4m3" and "e8m0"; pass one of these.'
        ],
    ),
    "group_size": (
        lambda: pack(size=48),
        [
            "tcgemm._pack_weight: group_size is 48, but must divide the 64 columns of w and be "
            "even, unless it is a whole row; pass a size that does."
        ],
    ),
    "no group": (lambda: pack(size=0), ["group_size is 0, but must divide the 64 columns of w"]),
    "limit": (
        lambda: pack(limit=0.0),
        ["limit is 0, but the scale is amax / limit; pass a positive number."],
    ),
    "a limit that is no number": (
        lambda: pack(limit=float("nan")),
        ["limit is nan", "pass a positive number."],
    ),
    "zero points of int8": (
        lambda: pack(format="int8", zero_points=True),
        [
            'tcgemm._pack_weight: zero_points is True, but format is "int8", and only "int4" has '
            "them; leave it out."
        ],
    ),
}
TENSORS_OF_PACKING = {
    "w": (
        lambda: pack(t(64)),
        [
            "tcgemm._pack_weight: w must be a matrix (N, K) of torch.float16, torch.bfloat16 or "
            "torch.float32, but is torch.float32 of shape (64,); pack one matrix at a time, and "
            "convert it with .to(...)."
        ],
    ),
    "dtype of w": (lambda: pack(t(4, 64, dtype=U8)), ["but is torch.uint8 of shape (4, 64)"]),
    "a book that int4 has not": (
        lambda: pack(book=t(3, 16)),
        [
            'tcgemm._pack_weight: book is given, but format is "int4"; "table4" has a book, and '
            "the others have none."
        ],
    ),
    "no book": (lambda: pack(format="table4"), ['book is None, but format is "table4"']),
    "shape of the book": (
        lambda: pack(format="table4", book=t(16)),
        [
            "tcgemm._pack_weight: book must be contiguous torch.float32 of 48 elements, but is "
            "torch.float32 of shape (16,); pass what tcgemm.pack_weight makes."
        ],
    ),
    "strides of the book": (
        lambda: pack(format="table4", book=t(16, 3).t()),
        ["book must be contiguous torch.float32 of 48 elements"],
    ),
    "global_scale": (
        lambda: pack(global_scale=t(2)),
        ["global_scale must be contiguous torch.float32 of 1 elements"],
    ),
    "device of the book": (
        lambda: OPS._pack_weight.default.redispatch(
            CPU, t(4, 64), t(3, 16).to("meta"), None, "table4", 32, 7.0, "float32"
        ),
        ["tcgemm._pack_weight: book is on meta, but w is on cpu; move it with .to(w.device)."],
    ),
}

TABLE = [
    pytest.param(call, pieces, id=name)
    for name, (call, pieces) in {
        **WORDS,
        **TENSORS,
        **WORDS_OF_PACKING,
        **TENSORS_OF_PACKING,
    }.items()
]
