"""Which operand is read as it is, copied, converted or transposed in registers."""

import itertools
import re

import pytest

from support import cases
from support.plan_cases import (
    plan,
)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("dtype", ("f16", "bf16", "f64"))
def test_aligned_operands_are_never_copied(dtype, layout):
    """f64 is read by cp.async: no alignment makes it copy, and TMA does not store it."""
    for size in (64, 1000, 4096, *((4095,) if dtype == "f64" else ())):
        fields = plan(size, size, size, dtype=dtype, layout=layout)
        assert fields["repack_a"] is fields["repack_b"] is None
        assert fields["workspace"] == 0
        if dtype != "f64":
            assert fields["store_path"].startswith("tma")
            continue
        assert fields["kernel"].startswith("sm90a_f64_f64_")
        is_gemv = size == 64 and layout == "TN"  # few elements, K-major operands
        assert fields["kernel"].endswith("_tn_gemv" if is_gemv else f"_{layout.lower()}")
        assert fields["vector_a"] == fields["vector_b"] == (size != 4095)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_large_odd_operands_are_copied_for_wgmma(layout):
    size = 4095
    fields = plan(size, size, size, layout=layout)
    assert fields["kernel"].startswith("sm90a")
    assert fields["kernel"].endswith("_tn")
    for name in ("repack_a", "repack_b"):
        assert fields[name]["pitch"] == 4096
    assert fields["workspace"] == 2 * size * 4096 * 2
    assert not fields["store_path"].startswith("tma")


@pytest.mark.parametrize(("k", "pitch"), [(31, 32), (500, 504), (505, 512), (4097, 4160)])
def test_copies_have_whole_lines_where_that_is_little(k, pitch):
    """Words of 8 elements, and lines of 64 in rows of a kilobyte and more."""
    fields = plan(4096, 4096, k, a=(0, 4097, 1), kernel="sm90a")
    assert fields["repack_a"]["pitch"] == pitch


def test_rows_inside_sectors_are_read_in_clusters():
    """They cost L2 twice the lines, and a cluster shares them."""
    kernel = "sm90a_e4m3_f32_128x256x128_w2_s4_tn_promoted"
    for pitch, gains in ((8192, False), (8208, True)):
        options = {"a": (0, pitch, 1), "b": (0, 1, pitch), "dtype": "e4m3", "out_dtype": "bf16"}
        single, best = (
            plan(4224, 8192, 8192, kernel=kernel + cluster, **options) for cluster in ("@1", "")
        )
        assert best["repack_a"] is best["repack_b"] is None
        assert (best["cluster"] != 1) >= gains
        assert (single["microseconds"] > 1.05 * best["microseconds"]) is gains


def test_only_what_needs_it_is_copied():
    pitched = (4096 * 4097, 4097, 1)
    fields = plan(4096, 4096, 4096, a=pitched)
    assert fields["repack_a"] is not None
    assert fields["repack_b"] is None
    assert fields["kernel"].endswith("_tn")
    fields = plan(4096, 4096, 4096, layout="NN", a=pitched)
    assert fields["repack_a"] is not None
    assert fields["repack_b"] is None
    assert fields["kernel"].endswith("_nn")
    fields = plan(4096, 4096, 4096, layout="NT", b=pitched)
    assert fields["repack_a"] is None
    assert fields["repack_b"] is not None
    assert fields["kernel"].endswith("_tt")


def test_a_broadcast_matrix_is_copied_once():
    fields = plan(2047, 2047, 2047, batch=8, a=(2048 * 2047, 2047, 1), b=(0, 1, 2047))
    assert fields["repack_a"]["batch"] == 8
    assert fields["repack_b"]["batch"] == 1


@pytest.mark.parametrize(
    ("size", "options"),
    [
        pytest.param((33, 17, 31), {"device": "A100"}, id="bf16"),
        pytest.param((33, 17, 30), {"dtype": "tf32", "layout": "NN", "device": "A100"}, id="tf32"),
    ],
)
def test_small_products_are_gathered_by_older_kernels(size, options):
    """Odd rows, and a type that comes K-major alone: an element at a time costs less than a
    launch."""
    fields = plan(*size, **options)
    assert fields["repack_a"] is fields["repack_b"] is None
    assert "sm80" in fields["kernel"]
    assert not fields["vector_b"]
    assert re.search(
        r"\n  scalar loads +(a and )?b .* loaded one element at a time", fields["explain"]
    )
    fields = plan(4096, 4096, 4096, **options)
    assert (fields["repack_b"] is not None) == (options.get("dtype") == "tf32")
    assert fields["vector_a"] and fields["vector_b"]


def test_what_stands_in_the_way_of_tma():
    """Base address, pitch, batch stride, step, stride 0: each alone keeps TMA from reading a."""
    options = {"kernel": "sm90a"}
    m = n = k = 256
    plain = plan(m, n, k, **options)
    assert plain["repack_a"] is plain["repack_b"] is None
    obstacles = (
        {"a_address": 2},
        {"a_address": 8},
        {"a": (0, 257, 1)},
        {"a": (0, 260, 1)},
        {"a": (0, 512, 2)},
        {"a": (0, 0, 1)},
        {"a": (256 * 256 + 4, 256, 1), "batch": 2},
    )
    for obstacle in obstacles:
        fields = plan(m, n, k, **options, **obstacle)
        assert fields["repack_a"] is not None, obstacle
        assert fields["repack_b"] is None
        assert "TMA cannot read it" in fields["check_layout"]
    fine = (
        {"a_address": 16},
        {"a": (0, 264, 1)},
        {"a": (0, 1, 264), "layout": "TT"},
        {"a": (256 * 264, 264, 1), "batch": 2},
        {"a": (0, 256, 1), "batch": 2},
        {"a": (264, 264 * 2, 1), "batch": 2},
    )
    for strides in fine:
        fields = plan(m, n, k, **options, **strides)
        assert fields["repack_a"] is fields["repack_b"] is None, strides


@pytest.mark.parametrize("dtype", ("s8", "tf32"))
@pytest.mark.parametrize("out", (None, (4096 * 4096, 1, 4096)), ids=("rows", "columns"))
def test_registers_transpose_what_wgmma_cannot(dtype, out):
    """A TT kernel: the operand that it transposes is a, or b of the transposed product."""
    for layout, rs, transposed in (
        ("TN", False, out is not None),
        ("TT", True, False),
        ("NN", True, True),
    ):
        fields = plan(4096, 4096, 4096, dtype=dtype, layout=layout, out=out)
        assert fields["kernel"].endswith("_tt_rs") == rs
        assert fields["swap_ab"] == transposed
        assert fields["repack_a"] is fields["repack_b"] is None
        assert ("is transposed in registers" in fields["explain"]) == rs
    fields = plan(4096, 4096, 4096, dtype=dtype, layout="NT", out=out)
    assert fields["kernel"].endswith("_rs")
    assert (fields["repack_a"] is None) != (fields["repack_b"] is None)


def test_explain_says_which_operand_is_transposed():
    text = plan(4096, 4096, 4096, dtype="s8", layout="NN")["explain"]
    assert re.search(r"\n  RS operand +b is transposed in registers, for about \d+ % of", text)
    assert re.search(r"\n  swap A/B +the operand that is transposed in .*: out\^T = ", text)
    assert "NN (a K-major, b MN-major)" in text
    assert "nothing is copied" in text
    assert "stored in pairs along columns" in text


@pytest.mark.parametrize("dtype", ("e4m3", "e5m2", "u8"))
def test_other_8_bit_operands_are_copied_k_major(dtype):
    for layout, operands in (("TN", ""), ("NN", "b"), ("TT", "a"), ("NT", "ab")):
        fields = plan(4096, 4096, 4096, dtype=dtype, layout=layout)
        assert fields["kernel"].startswith(f"sm90a_{dtype}_")
        for name in "ab":
            assert (fields[f"repack_{name}"] is not None) == (name in operands)
            reason = rf"repack {name} +copied K-major .* because tensor cores read {dtype} K-major"
            assert bool(re.search(reason, fields["explain"])) == (name in operands)


def test_what_cannot_be_read_is_copied_before_registers_transpose_it():
    fields = plan(4096, 4096, 4096, dtype="s8", b=(0, 4097, 1))
    assert fields["kernel"].endswith("_tn")
    assert fields["repack_b"]["pitch"] == 4096
    assert "leading dimension is not a multiple of 16 bytes" in fields["explain"]


def test_medium_precision_converts_both_operands():
    for layout, size in itertools.product(cases.LAYOUTS, (1, 64, 4096)):
        fields = plan(size, size, size, dtype="f32", precision="medium", layout=layout)
        assert "_bf16_f32_" in fields["kernel"]
        assert fields["repack_a"]["to"] == fields["repack_b"]["to"] == "bf16"
        assert "the tensor cores take f32 as bf16" in fields["explain"]
        assert "to launch both at once" in fields["explain"]
        assert "f32 as bf16 to f32" in fields["explain"]


def test_two_copies_share_a_launch():
    one = plan(4096, 4096, 4096, dtype="u8", layout="NN")["microseconds"]
    none = plan(4096, 4096, 4096, dtype="u8")["microseconds"]
    both = plan(4096, 4096, 4096, dtype="u8", layout="NT")["microseconds"]
    assert both - one < one - none - 1
