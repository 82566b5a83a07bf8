"""Plans of f32 products that keep all bits: in 16-bit terms, or through f64, and when which.

No GPU is asked: plans are plain numbers. core/split_fp32.h defines the terms; how the kernels use
them is tested in gpu/test_split_fp32.py.
"""

import pytest

from support.plan_cases import H200, plan, rows_by_name

F32 = {"dtype": "f32", "precision": "highest"}


def row_of(fields):
    return rows_by_name()[fields["kernel"]]


@pytest.mark.parametrize("layout", ["TN", "NN", "TT", "NT"])
def test_large_products_are_made_of_parts(layout):
    fields = plan(4096, 4096, 4096, layout=layout, **F32)
    row, split = row_of(fields), fields["split"]
    assert (row["input"], row["terms"], row["layout"]) == ("f16", 2, layout)
    other = rows_by_name()[split["alternative"]["kernel"]]
    assert (other["input"], other["terms"], other["layout"]) == ("bf16", 3, layout)
    recompute = rows_by_name()[split["recompute"]["kernel"]]
    assert (recompute["input"], recompute["tile"][:2]) == ("f32", (64, 64))
    assert split["a"]["mn_major"] == (layout[1] == "T")
    assert split["b"]["mn_major"] == (layout[0] == "N")
    # The terms of both types take the same place.
    assert fields["workspace"] < 2 * 4096 * 4096 * 2 * 3 + 2**20


@pytest.mark.parametrize("k", [1, 2, 16, 63])
def test_short_sums_go_through_f64(k):
    for m, n in ((64, 64), (4096, 4096)):
        fields = plan(m, n, k, **F32)
        assert row_of(fields)["input"] == "f32"
        assert fields["split"] is None


def test_small_products_go_through_f64():
    """One launch, where the passes would cost more than the product."""
    assert row_of(plan(256, 256, 256, **F32))["input"] == "f32"
    assert row_of(plan(512, 512, 512, **F32))["input"] == "f32"


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (1024, 1024, 8192), (4096, 4096, 1024)])
def test_wide_data_of_few_results_or_short_sums_goes_through_f64(size):
    """There are no bf16 terms, and no room for them."""
    fields = plan(*size, **F32)
    other = rows_by_name()[fields["split"]["alternative"]["kernel"]]
    assert (row_of(fields)["terms"], other["input"]) == (2, "f32")
    m, n, k = size
    assert fields["workspace"] < 4 * k * (m + n) + 2**20


def test_few_results_come_from_short_chains():
    """The smallest tile has the shortest; large results come from any."""
    assert tuple(row_of(plan(512, 512, 4096, **F32))["tile"][:2]) == (64, 64)
    assert row_of(plan(1024, 1024, 1024, **F32))["tile"][0] == 64
    assert tuple(row_of(plan(1024, 1024, 4096, **F32))["tile"][:2]) == (64, 64)
    assert row_of(plan(4096, 4096, 4096, **F32))["tile"][0] == 128


def test_amax_goes_through_f64():
    fields = plan(4096, 4096, 4096, epilogue=["amax"], **F32)
    assert row_of(fields)["input"] == "f32"


@pytest.mark.parametrize("size", [4095, 4097, 4098])
def test_nothing_is_copied_for_odd_sizes(size):
    fields = plan(size, size, size, **F32)
    assert fields["split"] is not None
    assert fields["repack_a"] is fields["repack_b"] is None


def test_strided_operands_are_split_k_major():
    fields = plan(2048, 2048, 2048, a=(0, 4096, 2), b=(0, 2, 8192), **F32)
    assert not fields["split"]["a"]["mn_major"]
    assert not fields["split"]["b"]["mn_major"]


def test_a_batch_of_one_b_is_split_once():
    fields = plan(512, 2048, 2048, batch=6, a=(2**21, 2048, 1), b=(0, 1, 2048), **F32)
    assert (fields["split"]["a"]["batch"], fields["split"]["b"]["batch"]) == (6, 1)


def test_a_prepared_operand_is_not_split_again():
    plain = plan(256, 4096, 4096, **F32)
    fields = plan(256, 4096, 4096, terms_b=2, **F32)
    assert fields["split"]["b"]["prepared_terms"] == 2
    assert fields["microseconds"] < plain["microseconds"] - 10
    assert "split-FP32 b  no pass: its 2 f16 terms are prepared" in fields["explain"]
    bf16 = plan(2048, 4096, 4096, terms_b=3, **F32)
    assert row_of(bf16)["terms"] == 3
    assert bf16["split"]["bf16"]
    assert bf16["split"]["alternative"] is None
    # A column-major result is computed as a row-major one is: test_same_bits.py.
    columns = plan(256, 4096, 4096, terms_b=2, out=(0, 1, 256), **F32)
    assert not columns["swap_ab"]
    assert columns["split"]["b"]["prepared_terms"] == 2


def test_a_filter_chooses_the_parts():
    """Whatever the depth, since it leaves nothing else."""
    for k in (1, 40, 4096):
        assert row_of(plan(512, 512, k, kernel="f16x2", **F32))["terms"] == 2
        fields = plan(512, 512, k, kernel="bf16x3", **F32)
        assert row_of(fields)["terms"] == 3
        assert fields["split"]["bf16"]
        assert row_of(plan(512, 512, k, kernel="f32_f64", **F32))["input"] == "f32"


def test_explain_says_what_it_is_made_of():
    text = plan(4096, 4096, 4096, **F32)["explain"]
    for words in (
        "precision     highest: operands split into 2 f16 terms",
        " 3 GEMMs of terms",
        "split-FP32 a  range statistics and f16 terms: 67.1 MB in, 67.1 MB out",
        "alternative   sm90a_bf16_f32_",
        "recompute     sm90a_f32_f64_64x64x",
        "workspace     ",
    ):
        assert words in text, text
    assert "multiplied and accumulated in f64" in plan(64, 64, 8, **F32)["explain"]
    assert "every 32 of k" in plan(512, 512, 512, kernel="bf16x3", **F32)["explain"]


def test_the_estimate_counts_passes_and_products():
    """About three f16 products, or six of bf16, at the rate of dense ones, and the passes."""
    dense = plan(8192, 8192, 8192, dtype="f16")["microseconds"]
    f16 = plan(8192, 8192, 8192, **F32)["microseconds"]
    bf16 = plan(8192, 8192, 8192, kernel="bf16x3", **F32)["microseconds"]
    assert 3 * dense < f16 < 4.5 * dense
    assert 6 * dense < bf16 < 8 * dense


def test_only_hopper_has_it():
    assert plan(64, 64, 64, device=H200, **F32)["kernel"]
    with pytest.raises(RuntimeError, match=r"precision=\"highest\" wants a GPU of compute"):
        plan(64, 64, 64, device="A100", **F32)
