"""emulate.mm has the bits of every kernel of the catalog that this GPU runs, on its own data.

Each row multiplies three shapes, one with a tail of K, of normal data, of widely spread exponents
and of subnormal numbers, and stores results of two dtypes. tests/emulate/ compares with recordings
instead, without a GPU.
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm import emulate, info

from support import cases
from support.cases import check_all
from support.catalog_rows import (
    Kind,
    block_scales,
    kind_of,
    kind_sizes,
    launch,
    operands,
    row_and_layout,
    rows,
)
from support.reference import same_bits
from support.sparse_operands import (
    dense_sides,
    multiply,
    operand_of,
    options_of,
    pattern,
    sparse_matrix,
)

SHAPES = (
    Kind("whole", lambda m, n, k, s: (m + 24, n + 40, 3 * k)),
    Kind("tail_of_k", lambda m, n, k, s: (m // 2 + 1, n // 2 + 3, 2 * k + k // 2 + 3)),
    Kind("deep", lambda m, n, k, s: (24, 40, (2 * s + 1) * k + 8)),
)
DATA = ("normal", "wide", "subnormal")
# Exponents of "wide" lie within plus and minus this; what overflows is Inf or NaN on both sides.
WIDE = {torch.float16: 6, torch.float8_e4m3fn: 4, torch.float8_e5m2: 8}


def device_name():
    """The GPU's name in the table of the planner."""
    name = torch.cuda.get_device_name()
    names = [row["name"] for row in info.devices() if row["name"] in name]
    if not names:
        pytest.skip(f"the planner has no row for {name}")
    return names[0]


def fill(x, data):
    """Fills x with elements of this kind of data."""
    if data == "wide":
        limit = WIDE.get(x.dtype, 40)
        powers = 2.0 ** torch.randint(-limit, limit + 1, x.shape, device=x.device)
        x.copy_(x.double() * powers)
    elif data == "subnormal":
        x.copy_(x.double() * torch.finfo(x.dtype).tiny)
    return x


def on_cpu(x):
    """A copy with the same strides."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype).copy_(x)


def assert_same(result, expected):
    equal = same_bits(result.cpu(), expected)
    if result.dtype is torch.float64:  # a CPU has other bits of NaN
        equal = torch.equal(result.cpu().nan_to_num(7.0), expected.nan_to_num(7.0))
    assert equal, f"{int((result.cpu() != expected).sum())} of {expected.numel()} differ"


def kinds_of_data(row):
    return DATA[:1] if row.types.integer else DATA


@rows()
def test_row_has_the_bits_of_the_emulator(row):
    gpu = device_name()

    def check(kind, data, out_dtype):
        kind = kind_of(kind, row)
        m, n, k = kind_sizes(kind, row)
        a, b = operands(*row_and_layout(row, kind.out), m, n, k)
        a = fill(a, data)
        scales = block_scales(row, m, n, k, step=len(kind.name), powers=False)
        guarded = cases.Guarded(kind.out, (m, n), dtype=out_dtype, device="cuda")
        launch(row, a, b, out=guarded.view, **scales)
        options = {name: scale.cpu() for name, scale in scales.items()} | row.types.options
        options |= {"out_dtype": out_dtype, "kernel": row.name, "device": gpu}
        assert_same(guarded.view, emulate.mm(on_cpu(a), on_cpu(b), **options))

    outs = dict.fromkeys((row.types.outs[0], row.types.widest))
    check_all(itertools.product(SHAPES, kinds_of_data(row), outs), check)


@rows(sparse=True)
def test_sparse_row_has_the_bits_of_the_emulator(row):
    gpu = device_name()

    def check(kind, data, side):
        m, n, k = kind_sizes(kind, row)
        w = sparse_matrix(m, k, row.types.a, device="cuda")
        w = fill(w, data)
        strides = "padded" if row.layout == "TN" else "transposed_padded"
        x = cases.make(strides, n, k, dtype=row.types.b, device="cuda")
        x, shape = (x.mT, (m, n)) if side == "a" else (x, (n, m))
        out = torch.empty(shape, dtype=row.types.outs[0], device="cuda")
        call_options = options_of(row.types)
        multiply(side, w, x, operand=operand_of(w), out=out, **call_options, kernel_name=row.name)
        sparse = tcgemm.compress24(w.cpu(), pattern=pattern(w.dtype))
        a, b = dense_sides(side, sparse, on_cpu(x))
        options = call_options | {"out_dtype": out.dtype, "kernel": row.name, "device": gpu}
        assert_same(out, emulate.mm(a, b, **options))

    check_all(itertools.product(SHAPES, kinds_of_data(row), ("a", "b")), check)


@rows(lambda row: row.arch == "sm90a" and row.tile[:2] == (128, 128))
def test_the_epilogue_has_the_bits_of_the_emulator(row):
    """Scales, c, bias, relu and the residual, in the order of the kernel."""
    gpu = device_name()
    if row.types.integer or row.unrolled_only:
        pytest.skip("of another epilogue")
    m, n, k = 200, 136, 3 * row.tile[2] + 128 * row.block_scaled
    a, b = operands(*row_and_layout(row, "padded"), m, n, k)
    scales = block_scales(row, m, n, k, powers=False)
    addends = [cases.make("padded", m, n, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    bias = cases.make("contiguous", n, dtype=torch.bfloat16, device="cuda")
    c, residual = addends
    if row.types.a is torch.float64:
        c, bias, residual = (x.double() for x in (c, bias, residual))
    terms = {"alpha": 0.75, "beta": 1.25, "activation": "relu"}
    out = torch.empty(m, n, dtype=row.types.outs[0], device="cuda")
    launch(row, a, b, c, bias, residual, out=out, **terms, **scales)
    options = {name: scale.cpu() for name, scale in scales.items()} | row.types.options | terms
    options |= {"c": on_cpu(c), "bias": bias.cpu(), "residual": on_cpu(residual)}
    options |= {"out_dtype": out.dtype, "kernel": row.name, "device": gpu}
    assert_same(out, emulate.mm(on_cpu(a), on_cpu(b), **options))
