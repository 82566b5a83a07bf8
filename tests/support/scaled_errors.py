"""The sentences about scales, zero points, integer results, precision and quantize.

A row is a call and pieces of its sentence, as in ops/test_errors.py, which also sees to it that
there is a row for each.
"""

import torch

from support.cases import BF16, F16, F32, F64
from support.error_asserts import quantised, rows_of, t

OPS = torch.ops.tcgemm
E4M3, E5M2, S8, U8, S32 = (
    *(torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int8, torch.uint8, torch.int32),
)
M, N, K = 300, 260, 140  # 3 x 3 blocks of the result, 2 of k


def operands(dtype, dtype_b=None, batch=(), m=M, n=N, k=K):
    return t(*batch, m, k, dtype=dtype), t(*batch, k, n, dtype=dtype_b or dtype)


def scaled(dtype, *scales, batch=(), **options):
    return OPS.scaled_mm(*operands(dtype, batch=batch), *scales, **options)


def as_kind(kind, *scale):
    """Questions take scales too, and name themselves."""
    return getattr(OPS, kind)(*operands(E4M3), None, None, *scale)


SCALES = {
    "dtype": (
        lambda: scaled(E4M3, t(dtype=BF16)),
        ["tcgemm: scale_a is torch.bfloat16, but scales are torch.float32", ".to(torch.float32)"],
    ),
    "unknown dtype": (
        lambda: scaled(E4M3, None, t().bool()),
        ["tcgemm: scale_b is torch.bool, but scales are torch.float32"],
    ),
    "dtype of scale_out": (
        lambda: scaled(BF16, scale_out=t(dtype=F64)),
        ["scale_out is torch.float64, but scales are torch.float32"],
    ),
    "device": (
        lambda: OPS.explain(*operands(E4M3), None, None, t(device="meta")),
        ["tcgemm.explain: scale_a is on meta, but a is on cpu", "make it on cpu"],
    ),
    "sparse": (
        lambda: scaled(E4M3, t(M, 1).to_sparse()),
        ["tcgemm: scale_a has the layout torch.sparse_coo", "scale_a.to_dense()"],
    ),
    "quantised": (
        lambda: scaled(BF16, quantised(M, 1)),
        ["tcgemm: scale_a is", "nothing here takes such a tensor", "scale_a.dequantize()"],
    ),
    "vector": (
        lambda: scaled(BF16, t(M)),
        ["scale_a must have one element or shape (300, 1), but has (300,)", "reshape it"],
    ),
    "vector of b": (
        lambda: scaled(BF16, None, t(N)),
        ["scale_b must have one element or shape (1, 260), but has (260,)", "reshape it"],
    ),
    "transposed": (
        lambda: scaled(E4M3, t(1, M)),
        [
            "scale_a must have one element or shape (300, 1)",
            "for blocks of 1x128 (300, 2)",
            "for blocks of 128x128 (3, 2)",
            "but has (1, 300)",
        ],
    ),
    "transposed of b": (
        lambda: scaled(E5M2, None, t(N, 1)),
        ["shape (1, 260), for blocks of 1x128 (2, 260), for blocks of 128x128 (2, 3)", "(260, 1)"],
    ),
    "one row of blocks": (lambda: scaled(E4M3, t(1, 2)), ["scale_a must have", "has (1, 2)"]),
    "blocks of b in a": (lambda: scaled(E4M3, t(2, N)), ["scale_a must have", "has (2, 260)"]),
    "for each element": (lambda: scaled(E4M3, t(M, K)), ["scale_a must have", "has (300, 140)"]),
    "none": (lambda: scaled(E4M3, t(0)), ["scale_a must have one element", "has (0,)"]),
    "batch": (
        lambda: scaled(E4M3, t(2, M, 1), batch=(3,)),
        [
            "tcgemm: the batch of scale_a, of shape (2, 300, 1), does not broadcast",
            "the batch of the result, (3,)",
            "must be 1 or as in the result",
        ],
    ),
    "batch of blocks": (
        lambda: scaled(E4M3, None, t(3, 2, N)),
        ["the batch of scale_b, of shape (3, 2, 260)", "the batch of the result, ();"],
    ),
    "blocks of f16": (
        lambda: scaled(F16, t(M, 2)),
        [
            "tcgemm: scale_a of shape (300, 2) scales blocks of 128",
            "there for fp8 operands, but a is torch.float16",
            "one value, or (300, 1) of them",
        ],
    ),
    "blocks of int8": (
        lambda: scaled(S8, None, t(2, 3), out_dtype=BF16),
        ["scale_b of shape (2, 3) scales blocks of 128", "a is torch.int8", "(1, 260) of them"],
    ),
    "fast blocks": (
        lambda: scaled(E4M3, t(M, 2), precision="fast"),
        ["scale_a of shape (300, 2) scales blocks", "added in float32", '"fast"', '"promoted"'],
    ),
    "fast blocks of b": (
        lambda: scaled(E4M3, t(), t(2, 3), precision="fast"),
        ["scale_b of shape (2, 3) scales blocks of 128", '"fast"', "None"],
    ),
    "scale_out": (
        lambda: scaled(E4M3, scale_out=t(1, N)),
        ["scale_out must have one element, but has shape (1, 260)", "for the whole result"],
    ),
    "explain": (
        lambda: as_kind("explain", t(N)),
        ["tcgemm.explain: scale_a must have one element", "(260,)"],
    ),
    "check_layout": (
        lambda: as_kind("check_layout", None, t(N)),
        ["tcgemm.check_layout: scale_b must have one element", "(260,)"],
    ),
}

ZEROS = {
    "of f16": (
        lambda: scaled(F16, zero_a=t(dtype=S32)),
        ["zero_a is given", "only torch.int8 and torch.uint8 operands", "a is torch.float16", "le"],
    ),
    "of fp8": (
        lambda: scaled(E4M3, zero_b=t(dtype=S32)),
        ["tcgemm: zero_b is given", "have zero points", "leave zero_b out"],
    ),
    "dtype": (
        lambda: scaled(S8, zero_a=t(dtype=S8)),
        ["zero_a is torch.int8, but zero points are torch.int32", ".to(torch.int32)"],
    ),
    "float": (
        lambda: scaled(U8, zero_b=t()),
        ["zero_b is torch.float32, but zero points are torch.int32"],
    ),
    "vector": (
        lambda: scaled(S8, zero_a=t(M, dtype=S32)),
        ["tcgemm: zero_a must have one element or shape (300, 1), but has (300,)"],
    ),
    "blocks": (
        lambda: scaled(S8, zero_b=t(2, N, dtype=S32)),
        ["tcgemm: zero_b must have one element or shape (1, 260), but has (2, 260)"],
    ),
    "batch": (
        lambda: scaled(S8, zero_b=t(2, 1, N, dtype=S32)),
        ["the batch of zero_b, of shape (2, 1, 260)", "the batch of the result, ()"],
    ),
}

ALONE = "but a torch.int32 result is computed in integers alone"
INTEGERS = {
    "alpha": (
        lambda: scaled(S8, alpha=0.5),
        ["tcgemm: alpha is 0.5", ALONE, "pass a whole number", "such as torch.bfloat16"],
    ),
    "alpha of 2**31": (lambda: scaled(S8, alpha=2.0**31), ["alpha is 2147483648", ALONE]),
    "alpha nan": (lambda: scaled(S8, alpha=float("nan")), ["alpha is nan", ALONE]),
    "alpha of mm": (
        lambda: OPS.mm(*operands(S8), alpha=1e-3),
        ["tcgemm.mm: alpha is 0.001", ALONE],
    ),
    "beta": (
        lambda: OPS.addmm(t(N, dtype=S32), *operands(S8, U8), beta=1.5),
        ["tcgemm.addmm: beta is 1.5", ALONE, "pass a whole number"],
    ),
    "activation": (
        lambda: OPS.linear(t(3, 4, dtype=S8), t(5, 4, dtype=S8), activation="gelu"),
        ['tcgemm.linear: activation is "gelu"', ALONE, 'there is "relu" for it'],
    ),
    "scale_a": (lambda: scaled(S8, t()), ["tcgemm: scale_a is given", ALONE, "leave it out"]),
    "scale_b": (lambda: scaled(S8, None, t(1, N)), ["tcgemm: scale_b is given", ALONE]),
    "scale_out": (lambda: scaled(U8, scale_out=t(1)), ["tcgemm: scale_out is given", ALONE]),
    "amax": (
        lambda: OPS.scaled_mm_amax(*operands(S8)),
        ["tcgemm: amax is asked for", ALONE, "leave it out"],
    ),
    "bias": (
        lambda: OPS.mm(*operands(S8), t(N)),
        ["bias is torch.float32", "must be torch.int32 when the result is torch.int32", ".to("],
    ),
    "c": (
        lambda: scaled(S8, c=t(N, dtype=S8)),
        ["c is torch.int8", "must be torch.int32 when the result is torch.int32"],
    ),
    "residual of a float result": (
        lambda: scaled(S8, residual=t(N, dtype=S32), out_dtype=BF16),
        ["residual is torch.int32", "torch.float32 when the result is torch.bfloat16"],
    ),
    "fp8 bias": (
        lambda: OPS.mm(*operands(E4M3), t(N, dtype=E4M3)),
        ["bias is torch.float8_e4m3fn"],
    ),
}

INT_RESULTS = "torch.int32, torch.float16, torch.bfloat16, torch.float32 or torch.int8"
TYPES = {
    "out_dtype of int8": (
        lambda: OPS.mm(*operands(S8), out_dtype=E4M3),
        ["out_dtype is torch.float8_e4m3fn, but operands of torch.int8 give", INT_RESULTS],
    ),
    "out_dtype u8": (
        lambda: OPS.mm(*operands(S8), out_dtype=U8),
        ["out_dtype is torch.uint8", INT_RESULTS],
    ),
    "out_dtype of fp8": (
        lambda: OPS.mm(*operands(E5M2), out_dtype=S8),
        ["out_dtype is torch.int8, but operands of torch.float8_e5m2 give", "torch.float8_e5m2;"],
    ),
    "out_dtype s8 of bf16": (
        lambda: OPS.mm(*operands(BF16), out_dtype=S8),
        ["out_dtype is torch.int8, but operands of torch.bfloat16 give"],
    ),
    "acc_dtype of fp8": (
        lambda: OPS.mm(*operands(E4M3), acc_dtype=F16),
        ["acc_dtype is torch.float16", "float8_e4m3fn are accumulated in torch.float32"],
    ),
    "acc_dtype of int8": (
        lambda: OPS.mm(*operands(U8, S8), acc_dtype=F32),
        ["acc_dtype is torch.float32", "torch.uint8 are accumulated in torch.int32"],
    ),
    "out of int8": (
        lambda: OPS.mm(*operands(S8), out=t(M, N)),
        ["out is torch.float32, but the result is torch.int32", "out_dtype"],
    ),
    "out of fp8": (
        lambda: scaled(E4M3, out=t(M, N, dtype=E4M3)),
        ["out is torch.float8_e4m3fn, but the result is torch.bfloat16"],
    ),
}

PRECISION = {
    "word": (
        lambda: OPS.mm(*operands(F32), precision="tf32"),
        ['precision is "tf32"', 'for torch.float32 there are "highest", "high" and "medium"', "No"],
    ),
    "fp8's for f32": (
        lambda: OPS.matmul(*operands(F32), precision="fast"),
        ['tcgemm.matmul: precision is "fast"', "for torch.float32"],
    ),
    "fp8's for bf16": (
        lambda: OPS.linear(t(3, 4, dtype=BF16), t(5, 4, dtype=BF16), precision="promoted"),
        ['precision is "promoted"', "for torch.bfloat16"],
    ),
    "f32's for fp8": (
        lambda: OPS.mm(*operands(E4M3, E5M2), precision="high"),
        ['precision is "high"', 'but fp8 products are "promoted"', '"fast"', "None"],
    ),
}


def prepared(b, terms, **options):
    """explain with terms of b: its tensors are on no GPU, but the answer is about one."""
    a = torch.empty(3, b.shape[-2], dtype=b.dtype, device=b.device)
    return OPS.explain(a, b, terms_b=terms, **options)


def on_meta(*shape, dtype=F32):
    return torch.empty(shape, dtype=dtype, device="meta")


BYTES = on_meta(512, dtype=U8)
PREPARED = {
    "dtype of a": (
        lambda: prepared(on_meta(4, 5, dtype=BF16), BYTES),
        [
            "tcgemm.explain: terms_b is given, but only torch.float32 operands have terms",
            "and a is torch.bfloat16; leave terms_b out",
        ],
    ),
    "precision": (
        lambda: OPS.scaled_mm(*operands(F32), terms_b=t(0, dtype=U8), precision="high"),
        [
            'tcgemm: terms_b is given, but its terms are for precision "highest"',
            "and another one is asked for; leave terms_b out",
        ],
    ),
    "a batch": (
        lambda: prepared(on_meta(2, 4, 5), BYTES),
        ["terms_b is given, which has the terms of one matrix, but b has shape (2, 4, 5)"],
    ),
    "dtype": (
        lambda: prepared(on_meta(4, 5), on_meta(512)),
        [
            "terms_b must be contiguous torch.uint8 with one dimension that begins at",
            "a multiple of 256 bytes, as prepare returns it, but is torch.float32 of shape (512,)",
            "pass it as it was returned",
        ],
    ),
    "dimensions": (
        lambda: prepared(on_meta(4, 5), BYTES[None]),
        ["terms_b must be contiguous", "of shape (1, 512) with strides (512, 1)"],
    ),
    "step": (
        lambda: prepared(on_meta(4, 5), BYTES[::2]),
        ["terms_b must be contiguous", "of shape (256,) with strides (2,)"],
    ),
    "alignment": (
        lambda: prepared(on_meta(4, 5), BYTES[16:]),
        ["begins at a multiple of 256 bytes", "of shape (496,) with strides (1,)"],
    ),
    "length": (
        lambda: prepared(on_meta(4, 5), BYTES),
        [
            "tcgemm.explain: terms_b has 512 bytes, but the terms of b of shape (4, 5)",
            ", as it lies in memory, are",
            "prepare this b, or leave terms_b out",
        ],
    ),
    "w": (
        lambda: OPS.prepare(t(3, 4, dtype=BF16)),
        [
            "tcgemm.prepare: w is torch.bfloat16, but torch.float32 alone is split into terms",
            "pass such a w to the products as it is",
        ],
    ),
    "w of three dimensions": (
        lambda: OPS.prepare(t(2, 3, 4)),
        [
            "tcgemm.prepare: w must be a matrix (N, K), as the weight",
            "has shape (2, 3, 4)",
            "one m",
        ],
    ),
    "w of 2**31": (
        lambda: OPS.prepare(t(1, 1).expand(2**31, 1)),
        ["w of shape (2147483648, 1) has a dimension of 2147483648", "2**31 - 1024", "torch.split"],
    ),
    "quantised w": (
        lambda: OPS.prepare(quantised(3, 4)),
        ["tcgemm.prepare: w is", "nothing here takes such a tensor", "w.dequantize()"],
    ),
    "sparse w": (
        lambda: OPS.prepare(t(3, 4).to_sparse()),
        ["tcgemm.prepare: w has the layout torch.sparse_coo", "w.to_dense()"],
    ),
}

ALIAS = torch.zeros(4, 4)
OUT = {
    "scale_a": (
        lambda: OPS.scaled_mm(t(4, 4), t(4, 4), ALIAS[:, :1], out=ALIAS),
        ["tcgemm: out shares memory with scale_a", "scale_a.clone()"],
    ),
    "scale_b": (
        lambda: OPS.scaled_mm(t(4, 4), t(4, 4), None, ALIAS[3:], out=ALIAS),
        ["tcgemm: out shares memory with scale_b"],
    ),
    "scale_out": (
        lambda: OPS.scaled_mm(t(4, 4), t(4, 4), scale_out=ALIAS[2, 2], out=ALIAS),
        ["tcgemm: out shares memory with scale_out"],
    ),
    "zero points": (
        lambda: OPS.scaled_mm(
            t(4, 4, dtype=S8),
            t(4, 4, dtype=S8),
            zero_a=ALIAS.view(S32)[:, :1],
            out=ALIAS.view(S32),
        ),
        ["tcgemm: out shares memory with zero_a", "zero_a.clone()"],
    ),
}

QUANTIZE = {
    "x": (
        lambda: OPS.quantize(t(3, 4, dtype=F64), E4M3),
        ["tcgemm.quantize: x is torch.float64", "torch.float16, torch.bfloat16 and torch.float32"],
    ),
    "quantised x": (
        lambda: OPS.quantize(quantised(3, 4), S8),
        ["tcgemm.quantize: x is", "nothing here takes such a tensor", "x.dequantize()"],
    ),
    "sparse x": (
        lambda: OPS.quantize(t(3, 4).to_sparse(), S8),
        ["tcgemm.quantize: x has the layout torch.sparse_coo", "x.to_dense()"],
    ),
    "dtype": (
        lambda: OPS.quantize(t(3, 4), U8),
        [
            "tcgemm.quantize: dtype is torch.uint8",
            "values are torch.float8_e4m3fn",
            "or torch.int8",
        ],
    ),
    "granularity": (
        lambda: OPS.quantize(t(3, 4), S8, "column"),
        ['granularity is "column"', 'but there are "tensor", "row", "1x128" and "128x128"', "pass"],
    ),
    "a number": (
        lambda: OPS.quantize(t(), S8),
        ["x has shape (), but", 'granularity "tensor"', "at least 1", "reshape"],
    ),
    "a row in squares": (
        lambda: OPS.quantize(t(4), E5M2, "128x128"),
        ["x has shape (4,)", '"128x128"', "needs a dimension for each", "at least 2", "reshape it"],
    ),
    "a scale of rows for a tensor": (
        lambda: OPS.quantize.scaled(t(3, 4), t(3, 1), S8),
        ["scale has shape (3, 1)", 'granularity "tensor" has one scale', "pass", "one element"],
    ),
    "a scale of a tensor for rows": (
        lambda: OPS.quantize.scaled(t(3, 4), t(), S8, "row"),
        ["scale has shape ()", 'with granularity "row"', "scales of shape (3, 1)", "pass"],
    ),
    "a scale in double precision": (
        lambda: OPS.quantize.scaled(t(3, 4), t(dtype=F64), S8),
        ["scale is torch.float64", "must be torch.float32", "convert it"],
    ),
}

TABLE = rows_of(
    {
        "scale": SCALES,
        "zero point": ZEROS,
        "integer": INTEGERS,
        "type": TYPES,
        "precision": PRECISION,
        "prepared": PREPARED,
        "out": OUT,
        "quantize": QUANTIZE,
    }
)
