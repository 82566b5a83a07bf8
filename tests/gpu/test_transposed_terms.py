"""Results that a kernel stores by columns, of products whose a and b are swapped: the terms of the
epilogue.

Each launch makes sure that it has this path and this orientation. Faults, and the tests that find
them:

    a term of another row or column    random biases, scales and addends
    a term in another order            the bits of a kernel that stores rows
    an element outside decides amax    one row and one vector; padding that is NaN
    a store beside the result          the guards
"""

import itertools
import math

import pytest
import torch

from tcgemm.ops import query

from support import cases, reference
from support.cases import BF16, F16, F32, check_all
from support.catalog_rows import (
    MIRRORED,
    Kind,
    built_rows,
    column_rows,
    kernel_name,
    launch,
    operands,
)
from support.column_products import (
    RAGGED,
    WAVES,
    activations,
    guarded_out,
    plain_out,
    sizes_of,
    whole_operands,
    wide_outs,
)
from support.dtype_matrix import scale_a, scale_b
from support.reference import same_bits

SCALED_MM = torch.ops.tcgemm.scaled_mm
EVERY_ROW = column_rows()
EIGHT_BITS = column_rows(lambda row: row.types.a.itemsize == 1)
FLOATS = column_rows(lambda row: not row.types.integer)


def row_of_same_sums(row):
    """The kernel of 128x128 stores rows of the call's result, in the same order of k."""
    rows = {other.name: other for other in built_rows()}
    layout = MIRRORED[row.layout].lower()
    name = f"sm90a_{row.input}_{row.accumulator}_128x128x{row.tile[2]}_w2_s6_{layout}"
    name += "_promoted" if row.promoted else ""
    return rows.get(name) or pytest.skip(f"this build has no {name}")


def check_bits(row, a, b, out, **options):
    """The bits of the kernel that stores rows; it need not be of the same tile."""
    launch(row, a, b, out=out.view, by_columns=True, **options)
    assert out.untouched()
    other = torch.empty_like(out.view)
    launch(row_of_same_sums(row), a, b, out=other, **options)
    assert same_bits(out.view, other)


def vector(along, m, n, dtype):
    """A bias along the columns of the call's result, or along its rows."""
    options = {"dtype": dtype, "device": "cuda", "largest": 9}
    if along == "columns":
        return cases.make("contiguous", 1, n, **options)[0]
    return cases.make("contiguous", m, 1, **options)


def addend(strides, m, n, dtype, batch=()):
    return cases.make(strides, *batch, m, n, dtype=dtype, device="cuda", largest=9)


def exact_terms(row, m, n, batch=()):
    """Terms with exact results: a bias along either dimension, relu, c, the residual, alpha."""
    columns, rows = (lambda dtype, a=a: vector(a, m, n, dtype) for a in ("columns", "rows"))
    matrix = {"padded": None, "contiguous": None}
    for strides in matrix:
        dtypes = (wide_outs(row) * 2)[:2]
        matrix[strides] = [addend(strides, m, n, dtype, batch) for dtype in dtypes]
    (first, second), (whole_first, whole_second) = matrix.values()
    return {
        "bias": {"bias": columns(F32)},
        "bias, relu": {"bias": columns(BF16), "activation": "relu"},
        "bias of rows": {"bias": rows(F16)},
        "bias of rows, relu": {"bias": rows(F32), "activation": "relu"},
        "relu": {"activation": "relu"},
        "alpha": {"alpha": -2.0},
        "c": {"c": second},
        "c, beta": {"c": whole_first, "beta": -0.5},
        "c, one row for all": {"c": addend("contiguous", 1, n, dtypes[0])[0], "beta": 2.0},
        "c, beta, bias": {"c": first, "beta": 2.0, "bias": columns(F16)},
        "c, bias of rows, relu": {"c": whole_second, "bias": rows(BF16), "activation": "relu"},
        "residual": {"residual": whole_first},
        "residual, relu": {"residual": first, "activation": "relu"},
        "residual, bias, relu": {"residual": second, "bias": columns(F32), "activation": "relu"},
        "residual, bias of rows, alpha": {
            "residual": whole_second,
            "bias": rows(F16),
            "alpha": 0.5,
            "activation": "relu",
        },
    }


@EVERY_ROW
def test_row_with_exact_terms(row):
    def check(kind, dtype):
        m, n, k = sizes_of(kind, row)
        a, b = whole_operands(row, m, n, k, batch=kind.batch)
        for name, terms in exact_terms(row, m, n, kind.batch).items():
            guarded = guarded_out(kind, m, n, dtype)
            launch(row, a, b, out=guarded.view, by_columns=True, **terms)
            options = row.types.options | {"out_dtype": dtype}
            expected = reference.exact(a, b, **terms, **options)
            assert torch.equal(guarded.view, expected), name
            assert guarded.untouched(), name

    kinds = (
        RAGGED,
        Kind("one_column", lambda m, n, k, s: (m + 8, 1, k + 9)),
        Kind("batch", lambda m, n, k, s: (m + 8, n // 2 + 3, k + 7), "padded", (5,)),
    )
    check_all([*itertools.product(kinds, wide_outs(row)), (WAVES, plain_out(row))], check)


@FLOATS
def test_row_with_an_activation(row):
    """The bits of the kernel that stores rows, with each activation and each other term."""

    def check(activation, name, dtype, kind):
        m, n, k = sizes_of(kind, row)
        a, b = operands(row, MIRRORED[row.layout], m, n, k)
        half = {"dtype": dtype, "device": "cuda"}
        bias = cases.make("contiguous", 1, n, dtype=F32, device="cuda")[0]
        terms = {
            "": {},
            "bias": {"bias": bias},
            "c": {"c": cases.make("padded", m, n, **half), "beta": 0.3, "bias": bias},
            "residual": {"residual": cases.make("padded", m, n, **half), "bias": bias},
            "alpha": {"alpha": 0.3},
        }[name]
        check_bits(row, a, b, guarded_out(kind, m, n, dtype), activation=activation, **terms)

    names = ("", "bias", "c", "residual", "alpha")
    words = (None, *activations(row))
    outs = wide_outs(row)
    check_all(
        (
            (word, name, outs[(i + j) % len(outs)], RAGGED)
            for (i, word), (j, name) in itertools.product(enumerate(words), enumerate(names))
        ),
        check,
    )
    check_all(((words[-1], "residual", dtype, WAVES) for dtype in outs), check)


@EVERY_ROW
def test_row_with_an_activation_is_close(row):
    """The same beside float64, integers too."""

    def check(activation, dtype):
        m, n, k = sizes_of(RAGGED, row)
        a, b = operands(row, MIRRORED[row.layout], m, n, k)
        bias = cases.make("contiguous", 1, n, dtype=F32, device="cuda")[0]
        alpha = 2.0**-15 if row.types.integer else 0.25
        options = {"activation": activation, "alpha": alpha, "bias": bias}
        guarded = guarded_out(RAGGED, m, n, dtype)
        launch(row, a, b, out=guarded.view, by_columns=True, **options)
        reference.assert_close(guarded.view, a, b, **options, **row.types.options)
        assert guarded.untouched()

    check_all(itertools.product(activations(row), wide_outs(row)), check)


@column_rows(lambda row: row.types.a.itemsize > 1)
def test_row_with_the_argument_of_its_activation(row):
    """Both results have the bits of calls that return one of them. A row for columns alone has no
    other kernel that could store z."""

    def check(activation, dtype, kind, terms):
        m, n, k = sizes_of(kind, row)
        a, b = operands(row, MIRRORED[row.layout], m, n, k)
        options = row.types.options | {"out_dtype": dtype}
        options["bias"] = cases.make("contiguous", 1, n, dtype=dtype, device="cuda")[0]
        epilogue = {"activation": activation}
        if terms or activation == "relu":  # relu needs its argument where a residual follows
            epilogue["residual"] = cases.make("padded", m, n, dtype=dtype, device="cuda")
        kernel = kernel_name(row, other_orientation=True)
        plan = query.ask("explain", a, b, **options, **epilogue, kernel=kernel)
        assert (plan["epilogue_path"], plan["swap_ab"]) == ("columns", True)
        options["kernel_name"] = kernel
        out, z = SCALED_MM.with_z(a, b, **options, **epilogue)
        assert same_bits(out, SCALED_MM(a, b, **options, **epilogue))
        assert same_bits(z, SCALED_MM(a, b, **options))

    shapes = (RAGGED, WAVES)
    combinations = (activations(row), wide_outs(row), shapes, (False, True))
    check_all(itertools.product(*combinations), check)


# Scales.


def power_scales(kind_a, kind_b, m, n, k, batch=()):
    options = {"device": "cuda", "powers": True, "batch": batch}
    scales = {"scale_a": scale_a(kind_a, m, k, **options)}
    scales["scale_b"] = scale_b(kind_b, n, k, **options)
    return {name: scale for name, scale in scales.items() if scale is not None}


SCALES = (
    *(("row", "row"), ("tensor", "row"), ("row", "tensor")),
    *(("row", ""), ("", "row"), ("tensor", "tensor")),
)


@EVERY_ROW
def test_row_with_scales(row):
    """Powers of two, exact in any order; a bias along either dimension, relu and c."""

    def check(kinds, term, dtype, shape):
        m, n, k = sizes_of(shape, row)
        # Scales beside a shared bias, and of batches, are read in pairs or for 8 columns at once.
        m += -m % 8
        a, b = whole_operands(row, m, n, k, batch=shape.batch)
        options = power_scales(*kinds, m, n, k, shape.batch)
        if term:
            options["bias"] = vector(term, m, n, F32)
            options["activation"] = "relu"
            options["c"] = addend("padded", m, n, dtype, shape.batch)
        guarded = guarded_out(shape, m, n, dtype)
        launch(row, a, b, out=guarded.view, by_columns=True, **options)
        keywords = row.types.options | options | {"out_dtype": dtype}
        reference.assert_guarded(guarded, reference.exact(a, b, **keywords))

    terms = ("", "columns", "rows")
    pairs = enumerate(itertools.product(SCALES, terms))
    outs = wide_outs(row)
    check_all(((*pair, outs[i % len(outs)], RAGGED) for i, pair in pairs), check)
    batch = Kind("batch", lambda m, n, k, s: (m + 8, n // 2 + 3, k + 7), "padded", (5,))
    check_all(
        (
            (("row", "row"), term, plain_out(row), shape)
            for term, shape in itertools.product(terms, (WAVES, batch))
        ),
        check,
    )


@EIGHT_BITS
def test_row_with_scales_of_odd_numbers_of_rows(row):
    """Without a bias of rows the scales are in shared memory, whatever their number."""

    def check(kinds, m):
        n, k = row.tile[0] + 8, 2 * row.tile[2] + 5
        a, b = whole_operands(row, m, n, k)
        options = power_scales(*kinds, m, n, k)
        guarded = cases.Guarded("padded", (m, n), dtype=BF16, device="cuda")
        launch(row, a, b, out=guarded.view, by_columns=True, **options)
        keywords = row.types.options | options | {"out_dtype": BF16}
        reference.assert_guarded(guarded, reference.exact(a, b, **keywords))

    sizes = (1, 7, row.tile[1] - 1, row.tile[1] + 1, row.tile[1] + 11)
    check_all(itertools.product(SCALES, sizes), check)


@EVERY_ROW
def test_row_with_scales_has_the_bits_of_rows(row):
    """Any numbers: alpha and scale_a are multiplied first, though a and b are swapped."""

    def check(kinds, alpha, dtype, term):
        m, n, k = sizes_of(RAGGED, row)
        m += -m % 8
        a, b = operands(row, MIRRORED[row.layout], m, n, k)
        options = {"device": "cuda"}
        scales = {"scale_a": scale_a(kinds[0], m, k, **options)}
        scales["scale_b"] = scale_b(kinds[1], n, k, **options)
        scales = {name: scale for name, scale in scales.items() if scale is not None}
        bias = {"bias": vector(term, m, n, F32)} if term else {}
        check_bits(row, a, b, guarded_out(RAGGED, m, n, dtype), alpha=alpha, **scales, **bias)

    combinations = (SCALES, (1.0, 0.7), wide_outs(row), ("", "columns", "rows"))
    check_all(itertools.product(*combinations), check)


@EVERY_ROW
def test_row_with_scale_out_and_amax(row):
    """Elements beside the result do not count: storage there is poison, NaN of floats."""

    def check(kind, dtype, terms):
        m, n, k = sizes_of(kind, row)
        m += -m % 8
        a, b = whole_operands(row, m, n, k)
        options = {}
        if terms:
            options = power_scales("row", "row", m, n, k)
            options |= {"bias": vector("columns", m, n, F32), "activation": "relu"}
        last = {"scale_out": torch.full((), 0.5, device="cuda"), "out_dtype": dtype}
        kernel = kernel_name(row, other_orientation=True)
        keywords = row.types.options | options
        plan = query.ask("explain", a, b, **keywords, **last, amax=True, kernel=kernel)
        assert (plan["kernel"], plan["epilogue_path"]) == (row.name, "columns")
        assert plan["swap_ab"]
        arguments = keywords | last | {"kernel_name": kernel}
        out, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **arguments)
        reference.assert_exact(out, reference.exact(a, b, **keywords, **last))
        reference.assert_amax(amax, a, b, **keywords)
        assert same_bits(out, SCALED_MM(a, b, **arguments))

    kinds = (
        RAGGED,
        WAVES,
        Kind("one_column", lambda m, n, k, s: (8, 1, k)),
        Kind("one_vector", lambda m, n, k, s: (m + 8, 9, k)),
    )
    check_all(itertools.product(kinds, wide_outs(row), (False, True)), check)


# Values that are not finite.


@FLOATS
def test_not_a_number_and_infinity_of_the_operands(row):
    """They stay in their row and column, inside of the result and at its edges."""

    def check(kind, name):
        m, n, k = sizes_of(kind, row)
        a, b = whole_operands(row, m, n, k)
        a[m // 2, k - 1] = math.nan
        b[0, n - 1] = math.nan
        if row.types.a != torch.float8_e4m3fn:
            a[0, 0] = math.inf
            b[k // 2, n // 2] = -math.inf
        terms = {}
        if name:
            terms["bias"] = vector("columns", m, n, F32)
            terms["residual"] = addend("padded", m, n, wide_outs(row)[-1])
            terms["bias"][3] = math.inf
            terms["residual"][m - 1, 5:7] = torch.tensor([math.nan, -math.inf])
        guarded = guarded_out(kind, m, n, plain_out(row))
        launch(row, a, b, out=guarded.view, by_columns=True, **terms)
        expected = reference.exact(a, b, **terms, **row.types.options, out_dtype=plain_out(row))
        assert torch.equal(guarded.view.isnan(), expected.isnan())
        assert torch.equal(guarded.view.nan_to_num(77.0), expected.nan_to_num(77.0))
        assert guarded.untouched()

    check_all(itertools.product((RAGGED, WAVES), ("", "terms")), check)


@column_rows(lambda row: F16 in wide_outs(row))
def test_a_value_beyond_float16_is_infinite(row):
    """As of a kernel that stores rows: rounding to nearest even, without saturation."""
    m, n, k = sizes_of(RAGGED, row)
    a, b = whole_operands(row, m, n, k)
    a.fill_(4), b.fill_(4)
    guarded = guarded_out(RAGGED, m, n, F16)
    launch(row, a, b, out=guarded.view, by_columns=True, alpha=2.0**12)
    assert bool((guarded.view == math.inf).all()) and guarded.untouched()
