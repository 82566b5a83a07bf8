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
        made = plan(size, size, size, dtype=dtype, layout=layout)
        assert made["prepare_a"] is made["prepare_b"] is None
        assert made["workspace"] == 0
        if dtype != "f64":
            assert made["store_path"].startswith("tma")
            continue
        assert made["kernel"].startswith("sm90a_f64_f64_")
        assert made["kernel"].endswith(f"_{layout.lower()}")
        assert made["vector_a"] == made["vector_b"] == (size != 4095)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_large_odd_operands_are_copied_for_wgmma(layout):
    size = 4095
    made = plan(size, size, size, layout=layout)
    assert made["kernel"].startswith("sm90a")
    assert made["kernel"].endswith("_tn")
    for name in ("prepare_a", "prepare_b"):
        assert made[name]["pitch"] == 4096
    assert made["workspace"] == 2 * size * 4096 * 2
    assert not made["store_path"].startswith("tma")


@pytest.mark.parametrize(("k", "pitch"), [(31, 32), (500, 504), (505, 512), (4097, 4160)])
def test_copies_have_whole_lines_where_that_is_little(k, pitch):
    """Words of 8 elements, and lines of 64 in rows of a kilobyte and more."""
    made = plan(4096, 4096, k, a=(0, 4097, 1), kernel="sm90a")
    assert made["prepare_a"]["pitch"] == pitch


def test_rows_inside_lines_are_read_in_clusters():
    """They cost L2 twice the lines, and a cluster shares b. 33 rows of tiles are no whole number of
    clusters."""
    for pitch, cluster in ((8192, 1), (8208, 2)):
        options = {"a": (0, pitch, 1), "b": (0, 1, pitch), "dtype": "e4m3", "out_dtype": "bf16"}
        made = plan(4224, 8192, 8192, **options)
        assert made["prepare_a"] is made["prepare_b"] is None
        assert made["kernel"].startswith("sm90a")
        assert made["cluster"] == cluster


def test_only_what_needs_it_is_copied():
    pitched = (4096 * 4097, 4097, 1)
    made = plan(4096, 4096, 4096, a=pitched)
    assert made["prepare_a"] is not None
    assert made["prepare_b"] is None
    assert made["kernel"].endswith("_tn")
    made = plan(4096, 4096, 4096, layout="NN", a=pitched)
    assert made["prepare_a"] is not None
    assert made["prepare_b"] is None
    assert made["kernel"].endswith("_nn")
    made = plan(4096, 4096, 4096, layout="NT", b=pitched)
    assert made["prepare_a"] is None
    assert made["prepare_b"] is not None
    assert made["kernel"].endswith("_tt")


def test_a_broadcast_matrix_is_copied_once():
    made = plan(2047, 2047, 2047, batch=8, b=(0, 1, 2047))
    assert made["prepare_a"]["batch"] == 8
    assert made["prepare_b"]["batch"] == 1


@pytest.mark.parametrize(
    ("size", "options"),
    [
        pytest.param((33, 17, 31), {}, id="bf16"),
        pytest.param((33, 17, 30), {"dtype": "tf32", "layout": "NN", "device": "A100"}, id="tf32"),
    ],
)
def test_small_products_are_gathered_by_older_kernels(size, options):
    """Odd rows, and a type that comes K-major alone: an element at a time costs less than a
    launch."""
    made = plan(*size, **options)
    assert made["prepare_a"] is made["prepare_b"] is None
    assert "sm80" in made["kernel"]
    assert not made["vector_b"]
    assert re.search(
        r"\n  scalar loads +(a and )?b .* loaded one element at a time", made["explain"]
    )
    made = plan(4096, 4096, 4096, **options)
    copied = options.get("dtype") == "tf32"
    assert (made["prepare_b"] is not None) == copied
    # TMA reads bf16.
    assert made["vector_a"] == made["vector_b"] == copied


def test_what_stands_in_the_way_of_tma():
    """Base address, pitch, batch stride, step, stride 0: each alone keeps TMA from reading a."""
    options = {"kernel": "sm90a"}
    m = n = k = 256
    plain = plan(m, n, k, **options)
    assert plain["prepare_a"] is plain["prepare_b"] is None
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
        made = plan(m, n, k, **options, **obstacle)
        assert made["prepare_a"] is not None, obstacle
        assert made["prepare_b"] is None
        assert "TMA cannot read it" in made["check_layout"]
    fine = (
        {"a_address": 16},
        {"a": (0, 264, 1)},
        {"a": (0, 1, 264), "layout": "TT"},
        {"a": (256 * 264, 264, 1), "batch": 2},
        {"a": (0, 256, 1), "batch": 2},
        {"a": (264, 264 * 2, 1), "batch": 2},
    )
    for strides in fine:
        made = plan(m, n, k, **options, **strides)
        assert made["prepare_a"] is made["prepare_b"] is None, strides


@pytest.mark.parametrize("dtype", ("s8", "tf32"))
@pytest.mark.parametrize("out", (None, (4096 * 4096, 1, 4096)), ids=("rows", "columns"))
def test_registers_transpose_what_wgmma_cannot(dtype, out):
    """A TT kernel: the operand that it transposes is a, or b of the transposed product."""
    for layout, rs, transposed in (
        ("TN", False, out is not None),
        ("TT", True, False),
        ("NN", True, True),
    ):
        made = plan(4096, 4096, 4096, dtype=dtype, layout=layout, out=out)
        assert made["kernel"].endswith("_tt_rs") == rs
        assert made["swap_ab"] == transposed
        assert made["prepare_a"] is made["prepare_b"] is None
        assert ("is transposed in registers" in made["explain"]) == rs
    made = plan(4096, 4096, 4096, dtype=dtype, layout="NT", out=out)
    assert made["kernel"].endswith("_rs")
    assert (made["prepare_a"] is None) != (made["prepare_b"] is None)


def test_explain_says_which_operand_is_transposed():
    text = plan(4096, 4096, 4096, dtype="s8", layout="NN")["explain"]
    assert re.search(r"\n  RS operand +b is transposed in registers, for about \d+ % of", text)
    assert re.search(r"\n  swap A/B +the operand that is transposed in .*: out\^T = ", text)
    assert "NN (a K-major, b MN-major)" in text
    assert "nothing is copied" in text
    assert "stored in pairs along columns" in text


@pytest.mark.parametrize("dtype", ("e4m3", "e5m2", "u8"))
def test_other_8_bit_operands_are_copied_k_major(dtype):
    for layout, copied in (("TN", ""), ("NN", "b"), ("TT", "a"), ("NT", "ab")):
        made = plan(4096, 4096, 4096, dtype=dtype, layout=layout)
        assert made["kernel"].startswith(f"sm90a_{dtype}_")
        for name in "ab":
            assert (made[f"prepare_{name}"] is not None) == (name in copied)
            reason = rf"repack {name} +copied K-major .* because tensor cores read {dtype} K-major"
            assert bool(re.search(reason, made["explain"])) == (name in copied)


def test_what_cannot_be_read_is_copied_before_registers_transpose_it():
    made = plan(4096, 4096, 4096, dtype="s8", b=(0, 4097, 1))
    assert made["kernel"].endswith("_tn")
    assert made["prepare_b"]["pitch"] == 4096
    assert "leading dimension is not a multiple of 16 bytes" in made["explain"]


def test_medium_precision_converts_both_operands():
    for layout, size in itertools.product(cases.LAYOUTS, (1, 64, 4096)):
        made = plan(size, size, size, dtype="f32", precision="medium", layout=layout)
        assert "_bf16_f32_" in made["kernel"]
        assert made["prepare_a"]["to"] == made["prepare_b"]["to"] == "bf16"
        assert "the tensor cores take f32 as bf16" in made["explain"]
        assert "to launch both at once" in made["explain"]
        assert "f32 as bf16 to f32" in made["explain"]


def test_two_copies_share_a_launch():
    one = plan(4096, 4096, 4096, dtype="u8", layout="NN")["microseconds"]
    none = plan(4096, 4096, 4096, dtype="u8")["microseconds"]
    both = plan(4096, 4096, 4096, dtype="u8", layout="NT")["microseconds"]
    assert both - one < one - none - 1
