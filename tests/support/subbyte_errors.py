"""Calls that Int4Tensor, BinaryTensor and their products refuse, with the whole sentences."""

import pytest
import torch

import tcgemm
from tcgemm import BinaryTensor, Int4Tensor
from tcgemm.operands.integers import binary, int4

from support import subbyte
from support.cases import F32, S8

OPS = torch.ops.tcgemm
A, B = (subbyte.int4(4, 6), subbyte.int4(5, 6))
INT8 = torch.zeros(6, 5, dtype=S8)
X, Y = (subbyte.bits(4, 20), subbyte.bits(5, 20))
ENTRIES = {
    "dtype of x": (
        lambda: Int4Tensor.from_int8(torch.zeros(2, 4)),
        "tcgemm.Int4Tensor.from_int8: x is torch.float32, but must be torch.int8 or torch.uint8; "
        "convert it with .to(torch.int8).",
    ),
    "int4 again": (
        lambda: Int4Tensor.from_int8(A),
        "tcgemm.Int4Tensor.from_int8: x is an Int4Tensor, but must be torch.int8 or torch.uint8; "
        "convert it with .to(torch.int8).",
    ),
    "odd": (
        lambda: Int4Tensor.from_int8(torch.zeros(4, 5, dtype=S8)),
        "tcgemm.Int4Tensor.from_int8: x has shape (4, 5), but its last dimension must be even, "
        "because a byte holds two elements; pad it with a zero.",
    ),
    "large": (
        lambda: Int4Tensor.from_int8(torch.tensor([-1, 9], dtype=S8)),
        "tcgemm.Int4Tensor.from_int8: x has values from -1 to 9, but signed int4 holds -8 to 7; "
        "clamp them, or pass signed=False where that fits.",
    ),
    "negative": (
        lambda: Int4Tensor.from_int8(torch.tensor([-1, 3], dtype=S8), signed=False),
        "tcgemm.Int4Tensor.from_int8: x has values from -1 to 3, but unsigned int4 holds 0 to 15; "
        "clamp them, or pass signed=True where that fits.",
    ),
    "bytes": (
        lambda: Int4Tensor(INT8),
        "tcgemm.Int4Tensor: bytes is torch.int8 of shape (6, 5), but must be torch.uint8 with a "
        "dimension -1, which holds two elements in each byte; pass such bytes, or call "
        "Int4Tensor.from_int8.",
    ),
    "int8 beside it": (
        lambda: tcgemm.mm(A, INT8),
        "tcgemm.mm: b is torch.int8, but a is an Int4Tensor, and both must be; pass "
        "Int4Tensor.from_int8 of b, or a.to_int8().",
    ),
    "float beside it": (
        lambda: tcgemm.linear(torch.zeros(4, 6), B),
        "tcgemm.linear: x is torch.float32, but weight is an Int4Tensor, and both must be; pass "
        "Int4Tensor.from_int8 of x, or weight.to_int8().",
    ),
    "bytes along M": (
        lambda: tcgemm.mm(subbyte.int4(6, 4).t(), B.t()),
        "tcgemm.mm: a, as a matrix of shape (4, 6), shares bytes along M, but the two elements "
        "of a byte must follow each other along K; pack the transpose: "
        "Int4Tensor.from_int8(a.to_int8().mT.contiguous()).mT.",
    ),
    "bytes along N": (
        lambda: tcgemm.mm(A, subbyte.int4(6, 8)),
        "tcgemm.mm: b, as a matrix of shape (6, 8), shares bytes along N, but the two elements "
        "of a byte must follow each other along K; pack the transpose: "
        "Int4Tensor.from_int8(b.to_int8().mT.contiguous()).mT.",
    ),
    "K": (
        lambda: tcgemm.mm(A, subbyte.int4(5, 8).t()),
        "tcgemm.mm: a of shape (4, 6) and b of shape (8, 5) cannot be multiplied: a has 6 columns "
        "(K), but b has 8 rows; pass a b with K = 6 rows, for example b.mT if yours is stored as "
        "(N, K).",
    ),
    "dimensions": (
        lambda: tcgemm.mm(subbyte.int4(2, 4, 6), B.t()),
        "tcgemm.mm: operands of shapes (2, 4, 6) and (6, 5), or the bias, do not have the "
        "dimensions that it takes; tcgemm.matmul takes vectors and batches.",
    ),
    "bias": (
        lambda: tcgemm.mm(A, B.t(), bias=subbyte.int4(1, 6)[:, :4]),
        "tcgemm.mm: bias is an Int4Tensor, but only the operands of the product can be; pass "
        "bias.to_int8() in a dtype that bias can have.",
    ),
    "result": (
        lambda: tcgemm.mm(A, B.t(), out_dtype=torch.float64),
        "tcgemm.mm: out_dtype is torch.float64, but operands of int4 give torch.int32, "
        "torch.float16, torch.bfloat16, torch.float32 or torch.int8; ask for one of these, or "
        "leave out_dtype out.",
    ),
    "sums": (
        lambda: tcgemm.mm(A, B.t(), acc_dtype=F32),
        "tcgemm.mm: acc_dtype is torch.float32, but products of int4 are accumulated in "
        "torch.int32; ask for that, or leave acc_dtype out.",
    ),
    "scales of blocks": (
        lambda: tcgemm.mm(
            subbyte.int4(4, 256), subbyte.int4(5, 256).t(), scale_a=torch.ones(4, 2), out_dtype=F32
        ),
        "tcgemm.mm: scale_a of shape (4, 2) scales blocks of 128, which is there for fp8 operands, "
        "but a is int4; pass one value, or (4, 1) of them.",
    ),
    "dtype": (
        lambda: A.to(torch.float32),
        "tcgemm.Int4Tensor: to(torch.float32) would change the sub-byte elements; convert "
        "to_int8() of the tensor.",
    ),
    "odd slice": (
        lambda: A[:, 1:3],
        "tcgemm.Int4Tensor: the slice 1:3:1 would divide a byte, because the elements along "
        "dimension 1 share bytes; call it with to_int8() of the tensor.",
    ),
    "select": (
        lambda: A[:, 1],
        "tcgemm.Int4Tensor: select(1, 1) would divide a byte, because the elements along dimension "
        "1 share bytes; call it with to_int8() of the tensor.",
    ),
    "view": (
        lambda: A.view(2, 12),
        "tcgemm.Int4Tensor: a tensor of shape (4, 6) has no view of shape (2, 12): the dimension "
        "whose elements share bytes must be the last one and keep its size; call it with to_int8() "
        "of the tensor.",
    ),
    "other operators": (
        lambda: A + A,
        "tcgemm.Int4Tensor: aten.add.Tensor is not supported for sub-byte elements; call it with "
        "to_int8() of the tensor.",
    ),
    "types": (
        lambda: OPS._int4_mm(A.bytes, B.bytes.t(), types="s4,s8"),
        'tcgemm: types is "s4,s8", but sub-byte operands are of s4 and u4 in any mix, or both of '
        'b1; pass two of these, as "s4,u4".',
    ),
    "no bytes": (
        lambda: OPS._int4_mm(INT8.t(), B.bytes.t(), types="s4,s4"),
        "tcgemm: a is torch.int8, but int4 operands are torch.uint8 tensors that hold 2 elements "
        "in each byte; pass the attribute `bytes` of a tcgemm.Int4Tensor.",
    ),
    "bytes apart": (
        lambda: OPS._int4_mm(A.bytes, B.bytes.clone().view(3, 5), types="s4,s4"),
        "tcgemm: b of int4 has the strides (5, 1) in bytes, but bytes that follow each other along "
        "K must be adjacent in memory; pass a contiguous tensor with K last, transposed.",
    ),
    "vector of bytes": (
        lambda: OPS._int4_mm(A.bytes[0], B.bytes.t(), types="s4,s4"),
        "tcgemm: a of int4 has shape (3,) in bytes, but must be at least a matrix; unsqueeze it.",
    ),
    "bool beside it": (
        lambda: tcgemm.binary_mm(X, torch.ones(20, 5, dtype=torch.bool)),
        "tcgemm.binary_mm: b is torch.bool of shape (20, 5), but must be a BinaryTensor; pass "
        "BinaryTensor.from_bool of its bits.",
    ),
    "vector of bits": (
        lambda: tcgemm.binary_mm(X[0], Y.t()),
        "tcgemm.binary_mm: a has shape (20,), but must be at least a matrix; unsqueeze it.",
    ),
    "bits along M": (
        lambda: tcgemm.binary_mm(subbyte.bits(20, 4).t(), Y.t()),
        "tcgemm.binary_mm: a of shape (4, 20) shares bytes along dimension -2, but the bits of "
        "a byte must follow each other along K, dimension -1; pack the transpose: "
        "BinaryTensor.from_bool(a.to_bool().mT).mT.",
    ),
    "K of bits": (
        lambda: tcgemm.binary_mm(X, subbyte.bits(5, 21).t()),
        "tcgemm.binary_mm: a of shape (4, 20) and b of shape (21, 5) cannot be multiplied: a has "
        "20 columns (K), but b has 21 rows; pass a b with K = 20 rows, for example b.mT if yours "
        "is stored as (N, K).",
    ),
    "operation": (
        lambda: tcgemm.binary_mm(X, Y.t(), "or"),
        'tcgemm.binary_mm: operation is \'or\', but there are "and", "xor", "pm1"; pass one of '
        "these.",
    ),
    "operation of the operator": (
        lambda: OPS._binary_mm(X.bytes, Y.bytes.t(), k=20, operation="or"),
        'tcgemm.binary_mm: operation is "or", but binary products count by "and", "xor" or "pm1"; '
        "pass one of these.",
    ),
    "k": (
        lambda: OPS._binary_mm(X.bytes, Y.bytes.t(), k=25, operation="and"),
        "tcgemm.binary_mm: k is 25, but a has 3 bytes along K, which hold 24 bits; pass a k that "
        "ends in the last byte.",
    ),
    "no bytes of bits": (
        lambda: OPS._binary_mm(INT8.t(), Y.bytes.t(), k=20, operation="and"),
        "tcgemm.binary_mm: a is torch.int8, but binary operands are torch.uint8 tensors that hold "
        "8 elements in each byte; pass the attribute `bytes` of a tcgemm.BinaryTensor.",
    ),
    "batches of bits": (
        lambda: tcgemm.binary_mm(subbyte.bits(2, 4, 20), subbyte.bits(3, 5, 20).mT),
        "tcgemm.binary_mm: a of shape (2, 4, 20) and b of shape (3, 20, 5) have different batches: "
        "2 against 3, and neither is 1; use expand or reshape so that they broadcast.",
    ),
    "out of bits": (
        lambda: tcgemm.binary_mm(X, Y.t(), out=torch.empty(4, 5)),
        "tcgemm.binary_mm: out is torch.float32, but the result is torch.int32; pass an out of "
        "that dtype, or out_dtype.",
    ),
    "bias of bits": (
        lambda: tcgemm.explain(X, Y.t(), bias=torch.zeros(5)),
        "tcgemm.explain: bias is given, but a binary product has no epilogue; leave bias out.",
    ),
    "alpha of bits": (
        lambda: tcgemm.explain(X, Y.t(), alpha=2.0),
        "tcgemm.explain: activation, alpha or amax is given, but a binary product has no epilogue; "
        "leave them out.",
    ),
    "other products": (
        lambda: tcgemm.mm(X, Y.t()),
        "tcgemm.mm: an operand is a BinaryTensor, whose products need an operation; call "
        "tcgemm.binary_mm.",
    ),
    "numbers": (
        lambda: BinaryTensor.from_bool(torch.zeros(2, 4)),
        "tcgemm.BinaryTensor.from_bool: x is torch.float32 of shape (2, 4), but must be torch.bool "
        "with at least one dimension; pass x > 0, or x != 0.",
    ),
    "bits again": (
        lambda: BinaryTensor.from_bool(X),
        "tcgemm.BinaryTensor.from_bool: x is a BinaryTensor of shape (4, 20), but must be "
        "torch.bool with at least one dimension; pass x > 0, or x != 0.",
    ),
    "bytes of bits": (
        lambda: BinaryTensor(INT8),
        "tcgemm.BinaryTensor: bytes is torch.int8 of shape (6, 5), but must be torch.uint8 with "
        "at least one dimension, which holds eight bits in each byte; pass such bytes, or call "
        "BinaryTensor.from_bool.",
    ),
    "slice of bits": (
        lambda: X[:, :12],
        "tcgemm.BinaryTensor: the slice 0:12:1 would divide a byte, because the elements along "
        "dimension 1 share bytes; call it with to_bool() of the tensor.",
    ),
    "saved bits": (
        lambda: binary.restored_binary(1, torch.full((2, 3), 255, dtype=torch.uint8), -1, 20),
        "tcgemm.BinaryTensor: the saved tensor is damaged: bits after its last element are 1; load "
        "another copy of the file.",
    ),
    "saved extent": (
        lambda: binary.restored_binary(1, torch.zeros(2, 3, dtype=torch.uint8), -1, 30),
        "tcgemm.BinaryTensor: the saved tensor is damaged: 30 bits along dimension -1 do not fit "
        "bytes of shape (2, 3); load another copy of the file.",
    ),
    "saved version": (
        lambda: int4.restored_int4(2, A.bytes, True, -1),
        "tcgemm.Int4Tensor: the saved tensor has the format 2, but this tcgemm reads 1; update "
        "tcgemm.",
    ),
}
TABLE = [pytest.param(call, sentence, id=name) for name, (call, sentence) in ENTRIES.items()]
