"""The sentences of the operators of structured sparsity.

A row is a call and pieces of its sentence, as in ops/test_errors.py, which also sees to it that
there is a row for each.
"""

import torch

import tcgemm  # noqa: F401  (the fakes)

from support.cases import BF16, E4M3, F16, F32, F64, S8, S32, U8
from support.error_asserts import quantised, rows_of, t

OPS = torch.ops.tcgemm
KINDS = "torch.float8_e5m2, torch.int8 and torch.uint8 are what can be sparse"


def compressed(rows, k, dtype=F16, pattern="2:4"):
    return OPS.compress24(t(rows, k, dtype=dtype), pattern)[:2]


def decompress(values, metadata, k=10, pattern="2:4"):
    return OPS.decompress24(values, metadata, k, pattern)


def gather(w, metadata, pattern="2:4"):
    return OPS.gather24(w, metadata, pattern)


def tile(metadata, k=10, pattern="2:4", dtype=F16):
    return OPS.tile24(metadata, k, pattern, dtype)


VALUES, METADATA = compressed(3, 10)  # (3, 6) and (3, 2)
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

OPERANDS = {
    "dtype": (
        lambda: OPS.compress24(t(3, 4, dtype=F64), "2:4"),
        ["tcgemm.compress24: w is torch.float64", "torch.float16, torch.bfloat16", KINDS, ".to("],
    ),
    "dtype of prune24": (
        lambda: OPS.prune24(t(3, 4, dtype=S32), "2:4"),
        ["tcgemm.prune24: w is torch.int32", KINDS],
    ),
    "bool": (lambda: OPS.prune24(t(3, 4).bool(), "2:4"), ["tcgemm.prune24: w is torch.bool"]),
    "dtype of values": (
        lambda: decompress(VALUES.double(), METADATA),
        ["tcgemm.decompress24: values is torch.float64", KINDS],
    ),
    "dtype of tiles": (
        lambda: tile(METADATA, dtype=F64),
        ["tcgemm.tile24: dtype is torch.float64", KINDS],
    ),
    "pattern": (
        lambda: OPS.compress24(t(3, 4), "4:8"),
        ['tcgemm.compress24: pattern is "4:8"', '"2:4" and, for torch.float32, "1:2"', "pass one"],
    ),
    "pattern of f16": (
        lambda: OPS.compress24(t(3, 4, dtype=F16), "1:2"),
        [
            'tcgemm.compress24: pattern is "1:2", which is for torch.float32, but w is',
            "torch.float16",
            'pattern="2:4"',
        ],
    ),
    "pattern of s8": (
        lambda: OPS.prune24(t(3, 4, dtype=S8), "1:2"),
        ['tcgemm.prune24: pattern is "1:2"', "w is torch.int8"],
    ),
    "pattern of values": (
        lambda: decompress(VALUES, METADATA, 6, "1:2"),
        ['tcgemm.decompress24: pattern is "1:2"', "values is torch.float16"],
    ),
    "pattern of tiles": (
        lambda: tile(METADATA, 6, "1:2", E4M3),
        ['tcgemm.tile24: pattern is "1:2"', "dtype is torch.float8_e4m3fn"],
    ),
    "2:4 as tf32": (
        lambda: tile(METADATA, dtype=F32),
        [
            "tcgemm.tile24: torch.float32 that is 2:4 cannot be multiplied as tf32, which takes",
            "1:2; convert the tensor to torch.bfloat16",
            'pattern="1:2"',
        ],
    ),
    "transposable 1:2": (
        lambda: OPS.prune24(t(4, 4), "1:2", True),
        [
            'tcgemm.prune24: transposable pruning is of "2:4", but pattern is "1:2"',
            "without transposable",
        ],
    ),
    "vector": (
        lambda: OPS.compress24(t(4), "2:4"),
        ["tcgemm.compress24: w must be a matrix (M, K), but has shape (4,)", "reshape it"],
    ),
    "batch": (
        lambda: OPS.prune24(t(2, 3, 4), "2:4"),
        ["tcgemm.prune24: w must be a matrix (M, K), but has shape (2, 3, 4)", "one matrix"],
    ),
    "rows": (
        lambda: OPS.compress24(t(1, 1).expand(2**31, 1), "2:4"),
        ["tcgemm.compress24: a dimension is 2147483648", "at most 2**31 - 1024", "torch.split"],
    ),
    "columns": (
        lambda: OPS.prune24(t(1, 1).expand(1, 2**31), "2:4"),
        ["tcgemm.prune24: a dimension is 2147483648"],
    ),
    "sparse": (
        lambda: OPS.compress24(t(3, 4).to_sparse(), "2:4"),
        ["tcgemm.compress24: w has the layout torch.sparse_coo", "w.to_dense()"],
    ),
    "sparse metadata": (
        lambda: tile(METADATA.to_sparse()),
        ["tcgemm.tile24: metadata has the layout torch.sparse_coo", "metadata.to_dense()"],
    ),
    "quantised": (
        lambda: OPS.prune24(quantised(3, 4), "2:4"),
        ["tcgemm.prune24: w is", "nothing here takes such a tensor", "w.dequantize()"],
    ),
    "quantised values": (
        lambda: decompress(quantised(3, 6), METADATA),
        ["tcgemm.decompress24: values is", "nothing here", "values.dequantize()"],
    ),
}

FORMAT = {
    "values dims": (
        lambda: decompress(VALUES[None], METADATA),
        ["tcgemm.decompress24: values must be a matrix (M, kept ones of a row)", "(1, 3, 6)"],
    ),
    "metadata dims": (
        lambda: tile(METADATA[0]),
        ["tcgemm.tile24: metadata must be a matrix (M, bytes of a row), but has shape (2,)"],
    ),
    "metadata dtype": (
        lambda: decompress(VALUES, METADATA.short()),
        [
            "tcgemm.decompress24: metadata is torch.int16, but positions of two bits stand in",
            "torch.uint8; pass the metadata that tcgemm.compress24 gave",
        ],
    ),
    "metadata dtype of tiles": (
        lambda: tile(METADATA.view(S8)),
        ["tcgemm.tile24: metadata is torch.int8"],
    ),
    "k of values": (
        lambda: decompress(VALUES, METADATA, 13),
        [
            "tcgemm.decompress24: values has shape (3, 6), but k = 13 with pattern",
            '"2:4" takes 8 columns',
            "pass the k and the pattern of the tensor that was compressed",
        ],
    ),
    "k of metadata": (
        lambda: decompress(VALUES, METADATA[:, :1]),
        ["metadata has shape (3, 1), but k = 10 with pattern", '"2:4" takes 2 columns'],
    ),
    "k of tiles": (
        lambda: tile(METADATA, 17),
        ["tcgemm.tile24: metadata has shape (3, 2), but k = 17", "takes 3 columns"],
    ),
    "pattern of the same dtype": (
        lambda: decompress(*compressed(3, 9, F32), 9, "1:2"),
        ["values has shape (3, 6), but k = 9 with pattern", '"1:2" takes 5 columns'],
    ),
    "negative k": (
        lambda: decompress(VALUES, METADATA, -1),
        ["tcgemm.decompress24: k is -1, but is the number of columns", "pass its shape[1]"],
    ),
    "negative k of tiles": (lambda: tile(METADATA, -(2**63)), ["tcgemm.tile24: k is -92233"]),
    "large k": (
        lambda: tile(METADATA, 2**63 - 1),
        ["tcgemm.tile24: k is 9223372036854775807, but can be at most 2**31 - 1024"],
    ),
    "large k of values": (lambda: decompress(VALUES, METADATA, 2**31), ["k is 2147483648"]),
    "two devices": (  # without a GPU the fakes would come first
        lambda: OPS.decompress24.default.redispatch(CPU, VALUES, METADATA.to("meta"), 10, "2:4"),
        ["tcgemm.decompress24: metadata is on meta, but values is on cpu", "move one of them"],
    ),
    "what is gathered": (
        lambda: gather(t(3, 10, dtype=F64), METADATA),
        ["tcgemm.gather24: w is torch.float64", KINDS],
    ),
    "what is gathered, dimensions": (
        lambda: gather(t(3, 10, dtype=F16)[None], METADATA),
        ["tcgemm.gather24: w must be a matrix (M, K), but has shape (1, 3, 10)"],
    ),
    "columns of what is gathered": (
        lambda: gather(t(3, 30, dtype=F16), METADATA),
        ["tcgemm.gather24: metadata has shape (3, 2), but k = 30", "takes 4 columns"],
    ),
    "rows of what is gathered": (
        lambda: gather(t(2, 10, dtype=F16), METADATA),
        ["tcgemm.gather24: metadata has shape (3, 2), but w of shape (2, 10) has 2 rows"],
    ),
    "device of what is gathered": (
        lambda: OPS.gather24.default.redispatch(CPU, VALUES, METADATA.to("meta"), "2:4"),
        ["tcgemm.gather24: metadata is on meta, but w is on cpu", "move one of them"],
    ),
    "rows of metadata": (
        lambda: decompress(VALUES, METADATA[:2]),
        [
            "tcgemm.decompress24: metadata has shape (2, 2), but values of shape (3, 6) has 3 rows",
            "pass the values and the metadata that one call of tcgemm.compress24 gave",
        ],
    ),
}


def product(dtype=BF16, shape=(8, 16), metadata=(8, 4), k=32, op=OPS.scaled_mm, **options):
    """a (8, 32) of zeros as values and metadata, times b (k, 8)."""
    b = t(k, 8, dtype=dtype)
    return op(t(*shape, dtype=dtype), b, sparse_a=t(*metadata, dtype=U8), **options)


PRODUCTS = {
    "f64": (
        lambda: product(F64),
        [
            "tcgemm: sparse_a is given, but a is torch.float64, of which tensor cores take no",
            "convert both operands to torch.float32",
        ],
    ),
    "precision of f32": (
        lambda: product(F32),
        [
            "tcgemm: sparse_a is given, but sparse torch.float32 operands are multiplied as tf32",
            'pass precision="high"',
        ],
    ),
    "medium": (
        lambda: product(F32, precision="medium"),
        ['with precision "medium", but the values are torch.float32', 'or pass "high"'],
    ),
    "promoted": (
        lambda: product(E4M3, precision="promoted"),
        ["but sums of sparse fp8 operands stay in the tensor cores", 'precision="fast", or None'],
    ),
    "accumulator": (
        lambda: product(F16, acc_dtype=F16),
        ["sparse torch.float16 operands are accumulated in torch.float32", "leave acc_dtype out"],
    ),
    "zero point": (
        lambda: product(S8, zero_a=t(dtype=S32)),
        ["tcgemm: zero_a and sparse_a do not go together", "leave zero_a out"],
    ),
    "blocks": (
        lambda: product(E4M3, (8, 128), (8, 32), 256, scale_a=t(8, 1), scale_b=t(2, 8)),
        [
            "tcgemm: scale_b scales blocks along K, which a sparse operand does not have",
            "one value",
        ],
    ),
    "both": (
        lambda: product(sparse_b=t(8, 4, dtype=U8)),
        ["sparse_a and sparse_b are given, but tensor cores take one", "decompress the other one"],
    ),
    "K": (
        lambda: product(shape=(8, 15)),
        [
            "tcgemm: a has shape (8, 15) and is sparse, and b has shape (32, 8): for K = 32 there",
            "are 16 values along K; pass the values of a matrix with that K",
        ],
    ),
    "batch of values": (
        lambda: product(shape=(2, 8, 16)),
        ["sparse_a is given, which belongs to one matrix, but a has shape (2, 8, 16)"],
    ),
    "metadata on the CPU": (
        lambda: product(metadata=(8, 3)),
        [
            "tcgemm: sparse_a must be torch.uint8 of shape (8, 4), as compress24 makes it beside",
            "these values, but is torch.uint8 of shape (8, 3); pass its metadata",
        ],
    ),
    "tiles": (
        lambda: product(metadata=(100,), op=OPS.explain, device="H200"),
        [
            "tcgemm.explain: sparse_a must be contiguous torch.uint8 of shape (4608,), as tile24",
            "the metadata of these values, but is torch.uint8 of shape (100,); pass what tile24",
        ],
    ),
}

TABLE = rows_of({"operands": OPERANDS, "format": FORMAT, "products": PRODUCTS})
