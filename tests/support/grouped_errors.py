"""The sentences of grouped products, as rows: a call, and what it says."""

import torch

from support.cases import BF16, F16, F64
from support.error_asserts import rows_of, t

OPS = torch.ops.tcgemm
T, M, N, K = 6, 3, 5, 4
ROWS = t(T, K), t(2, K, N)  # a and b; the groups divide the rows of a
COLUMNS = t(2, M, K), t(K, T)
DEPTH = t(M, T), t(T, N)
BATCH = t(2, M, K), t(2, K, N)


def ends(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device="cpu")


ENDS = ends(2, 6)
CUMULATIVE = "; offs has the end of each group, which is the cumulative sum of their lengths."


def grouped(operands=ROWS, offs=ENDS, bias=None, residual=None, **options):
    return lambda: OPS.grouped_mm(*operands, offs, bias, residual, **options)


def into(out, operands=ROWS, offs=ENDS, bias=None, residual=None, **options):
    return lambda: OPS.grouped_mm.out(*operands, offs, bias, residual, out=out, **options)


def meta(*shape, dtype=F16):
    return torch.empty(shape, dtype=dtype, device="meta")


VALUES = {
    "negative": (
        grouped(offs=ends(-1, 6)),
        [
            "tcgemm.grouped_mm: offs[0] is -1, but no group ends before index 0",
            CUMULATIVE,
        ],
    ),
    "negative, int64": (
        grouped(offs=ends(2, -(2**40), dtype=torch.int64)),
        ["tcgemm.grouped_mm: offs[1] is -1099511627776, but no group ends before index 0"],
    ),
    "falling": (
        grouped(offs=ends(4, 3)),
        [
            "tcgemm.grouped_mm: offs[1] is 3, but offs[0] is 4, ",
            "and a group cannot end before the one in front of it",
            CUMULATIVE,
        ],
    ),
    "past the rows": (
        grouped(offs=ends(2, 7)),
        ["tcgemm.grouped_mm: offs[1] is 7, but there are 6 rows of a", CUMULATIVE],
    ),
    "past the columns": (
        grouped(COLUMNS, ends(7, 7)),
        ["tcgemm.grouped_mm: offs[0] is 7, but there are 6 columns of b", CUMULATIVE],
    ),
    "past k": (
        grouped(DEPTH, ends(2, 7)),
        ["tcgemm.grouped_mm: offs[1] is 7, but there are 6 columns of a", CUMULATIVE],
    ),
    "past 32 bits": (
        grouped(offs=ends(2, 2**32 + 6, dtype=torch.int64)),
        ["tcgemm.grouped_mm: offs[1] is 4294967302, but there are 6 rows of a", CUMULATIVE],
    ),
}
OFFS = {
    "dtype": (
        grouped(offs=ENDS.float()),
        [
            "tcgemm.grouped_mm: offs is torch.float32, but the ends of groups are torch.int32 or "
            "torch.int64; convert it with .to(torch.int32)."
        ],
    ),
    "missing": (
        grouped(DEPTH, None),
        [
            "tcgemm.grouped_mm: offs is not given, but with a of shape (3, 6) and b of shape "
            "(6, 5) the groups divide the columns of a; pass the end of each group as a tensor of "
            "torch.int32."
        ],
    ),
    "of a batch": (
        grouped(BATCH),
        [
            "tcgemm.grouped_mm: offs is given, but a of shape (2, 3, 4) and b of shape (2, 4, 5) "
            "have a matrix for each group, so that no dimension is divided; leave offs out."
        ],
    ),
    "matrix": (
        grouped(offs=ENDS[None]),
        [
            "tcgemm.grouped_mm: offs must be a vector (G,), but has shape (1, 2); pass the end of "
            "each group."
        ],
    ),
    "length": (
        grouped(offs=ends(0, 2, 6)),
        [
            "tcgemm.grouped_mm: offs has 3 ends of groups, but b of shape (2, 4, 5) has 2 "
            "matrices; pass the end of each group, without a 0 in front."
        ],
    ),
    "length of a": (grouped(COLUMNS, ends(1)), ["offs has 1 ends of groups, but a of shape (2,"]),
    "device": (
        grouped(offs=meta(2, dtype=torch.int32)),
        ["tcgemm.grouped_mm: offs is on meta, but a is on cpu;", "offs has no values on meta"],
    ),
    "too many rows": (
        grouped((meta(2**31, 4), meta(2, 4, 5)), meta(2, dtype=torch.int64)),
        [
            "tcgemm.grouped_mm: there are 2147483648 rows of a, but the ends of groups are read as "
            "32 bits, so there can be at most 2**31 - 1024; split the groups over two calls."
        ],
    ),
}
TENSORS = {
    "a": (
        grouped((t(T), ROWS[1])),
        [
            "tcgemm.grouped_mm: a must be a matrix or a batch (G, M, K), but has shape (6,); the "
            "first dimension of a batch counts groups."
        ],
    ),
    "b": (
        grouped((ROWS[0], t(1, 2, K, N))),
        ["tcgemm.grouped_mm: b must be a matrix or a batch (G, K, N), but has shape (1, 2, 4, 5)"],
    ),
    "dtype of a": (
        grouped((ROWS[0].to(torch.float8_e4m3fn), ROWS[1])),
        [
            "tcgemm.grouped_mm: a is torch.float8_e4m3fn, but a grouped product takes "
            "torch.float16, torch.bfloat16, torch.float32 and torch.float64; convert both operands "
            "with .to(...)."
        ],
    ),
    "dtype of b": (
        grouped((ROWS[0], ROWS[1].to(torch.int8))),
        ["tcgemm.grouped_mm: b is torch.int8, but a grouped product takes torch.float16"],
    ),
    "two dtypes": (
        grouped((ROWS[0].to(BF16), ROWS[1])),
        ["tcgemm.grouped_mm: b is torch.float32, but a is torch.bfloat16; both must have one"],
    ),
    "k": (
        grouped((ROWS[0][:, 1:], ROWS[1])),
        [
            "tcgemm.grouped_mm: a of shape (6, 3) and b of shape (2, 4, 5) cannot be multiplied: "
            "a has 3 columns (K), but b has 4 rows; pass a b with K = 3 rows, for example b.mT"
        ],
    ),
    "k in groups": (
        grouped((t(T, M), t(T, N))),
        [
            "tcgemm.grouped_mm: a of shape (6, 3) and b of shape (6, 5) cannot be multiplied: a "
            "has 3 columns, but b has 6 rows, and the groups are groups of both; pass a.t() if "
            "yours is stored as (T, M), and b.t() if yours is stored as (N, T)."
        ],
    ),
    "batches": (
        grouped((t(3, M, K), BATCH[1]), None),
        [
            "tcgemm.grouped_mm: a of shape (3, 3, 4) and b of shape (2, 4, 5) have different "
            "batches: 3 against 2; both have a matrix for each group, so use expand."
        ],
    ),
    "a batch of one": (grouped((t(1, M, K), BATCH[1]), None), ["different batches: 1 against 2"]),
    "bias": (
        grouped(bias=t(N)),
        [
            "tcgemm.grouped_mm: bias must have shape (2, 5), a row for each group, but has (5,); "
            "pass one row for all groups as bias.expand(2, 5)."
        ],
    ),
    "bias of columns": (
        grouped(COLUMNS, bias=t(2, T)),
        [
            "tcgemm.grouped_mm: bias must have shape (6,), one number for each column of b, but "
            "has (2, 6); pass anything that varies along the rows as residual."
        ],
    ),
    "residual": (
        grouped(residual=t(1, N)),
        [
            "tcgemm.grouped_mm: residual has shape (1, 5), but the result has shape (6, 5); pass a "
            "residual of that shape, for example with expand."
        ],
    ),
    "dtype of the bias": (
        grouped(bias=t(2, N, dtype=F64)),
        ["tcgemm.grouped_mm: bias is torch.float64, but it must be torch.float16, torch.bfloat16"],
    ),
    "out_dtype": (
        grouped(out_dtype=torch.int8),
        ["tcgemm.grouped_mm: out_dtype is torch.int8, but operands of torch.float32 give"],
    ),
    "precision": (
        grouped(precision="fast"),
        ['tcgemm.grouped_mm: precision is "fast", but for torch.float32 there are "highest"'],
    ),
    "activation": (grouped(activation="tanh"), ['tcgemm.grouped_mm: activation is "tanh", but']),
}
OUT = {
    "shape": (into(t(T, N + 1)), ["tcgemm.grouped_mm: out has shape (6, 6), but the result has"]),
    "dtype": (into(t(T, N, dtype=BF16)), ["tcgemm.grouped_mm: out is torch.bfloat16, but the"]),
    "itself": (into(t(1, N).expand(T, N)), ["tcgemm.grouped_mm: out of shape (6, 5) with strides"]),
    "no out": (
        grouped(accumulate=True),
        [
            "tcgemm.grouped_mm: accumulate=True adds the product to out, but there is no out; pass "
            "out=, or leave accumulate out."
        ],
    ),
    "accumulate and bias": (
        into(t(T, N), bias=t(2, N), accumulate=True),
        [
            "tcgemm.grouped_mm: bias is given, but with accumulate=True out + alpha * (a @ b) is "
            "computed and nothing else; leave bias out, or accumulate."
        ],
    ),
    "accumulate and residual": (
        into(t(T, N), residual=t(T, N), accumulate=True),
        ["tcgemm.grouped_mm: residual is given, but with accumulate=True", "leave residual out"],
    ),
    "accumulate and activation": (
        into(t(T, N), activation="relu", accumulate=True),
        ["tcgemm.grouped_mm: activation is given, but with accumulate=True", "leave activation"],
    ),
    "accumulate, dtype": (
        into(t(T, N, dtype=torch.float8_e5m2), accumulate=True),
        [
            "tcgemm.grouped_mm: out is torch.float8_e5m2, but with accumulate=True and operands of "
            "torch.float32 it must be torch.float16, torch.bfloat16 or torch.float32; pass an out "
            "of such a dtype."
        ],
    ),
    "accumulate, float64": (
        into(t(T, N), tuple(x.double() for x in ROWS), accumulate=True),
        ["out is torch.float32, but with accumulate=True and", "it must be torch.float64; pass an"],
    ),
}


def _shared():
    """out in the memory of each tensor that is read."""
    whole = t(64)
    words = torch.arange(64, device="cpu").to(torch.int64)
    a, b, bias = whole[:24].view(T, K), whole[:40].view(2, K, N), whole[:10].view(2, N)
    out = whole[:30].view(T, N)
    offs = words[2:7:4]  # 2 and 6
    return {
        "a": into(out, (a, ROWS[1])),
        "b": into(out, (ROWS[0], b)),
        "bias": into(out, bias=bias),
        "residual": into(out, residual=whole[20:50].view(T, N)),
        "offs": into(words.view(torch.float32)[4:34].view(T, N), offs=offs),
        "offs, int32": into(
            ENDS_AND_OUT[2:].view(torch.float32).view(T, N), offs=ENDS_AND_OUT[1:3]
        ),
    }


EXPLAINED = {
    "accumulate without groups": (
        lambda: OPS.explain(t(M, K), t(K, N), accumulate=True),
        [
            "tcgemm.explain: accumulate=True is given without offs, but tcgemm.grouped_mm alone "
            "adds to out; pass offs, or c=out for a product of tcgemm.addmm."
        ],
    ),
    "another argument beside groups": (
        lambda: OPS.explain(*ROWS, offs=ENDS, amax=True),
        [
            "tcgemm.explain: amax is given beside offs, but tcgemm.grouped_mm has no amax; leave "
            "one of them out."
        ],
    ),
}

ENDS_AND_OUT = torch.ones(32, dtype=torch.int32, device="cpu")
SHARED = {
    name: (call, [f"tcgemm.grouped_mm: out shares memory with {name.split(',')[0]}, which is read"])
    for name, call in _shared().items()
}
TABLE = rows_of(
    {
        "values": VALUES,
        "offs": OFFS,
        "tensors": TENSORS,
        "out": OUT,
        "shared memory": SHARED,
        "explained": EXPLAINED,
    }
)
