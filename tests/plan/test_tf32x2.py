"""Plans of f32 products whose kernel makes two TF32 terms: for which sizes, in which orientation,
and what they leave to other kernels. No GPU is asked.
"""

import pytest

from support.plan_cases import plan, rows_by_name

F32 = {"dtype": "f32", "precision": "highest"}


def takes_it(*size, **options):
    return "tf32x2" in plan(*size, **F32 | options)["kernel"]


# What takes less time on an H200, of the kernels that were measured.
@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize(
    "size",
    [(64, 4096, 4096), (128, 4096, 4096), (64, 14336, 4096), (64, 4096, 14336), (150, 1276, 9244)],
)
def test_few_rows(size, layout):
    assert takes_it(*size, layout=layout)
    m, n, k = size
    assert takes_it(n, m, k, layout={"TN": "TN", "NN": "TT"}[layout])


@pytest.mark.parametrize(
    "size",
    [
        (2048, 2048, 2048),
        (4096, 4096, 4096),
        (329, 3604, 9308),
        (1024, 2048, 1024),
        (8, 4096, 4096),
    ],
)
def test_other_products(size):
    assert not takes_it(*size)


def test_the_larger_operand_is_the_first_of_the_kernel():
    """Its rows are read once. The layout of the result does not decide it."""
    for out in (None, (0, 1, 64)):
        assert plan(64, 4096, 4096, out=out, **F32)["swap_ab"]
    for out in (None, (0, 1, 4096)):
        assert not plan(4096, 64, 4096, out=out, **F32)["swap_ab"]


def test_slices_of_k_are_those_of_the_plain_product():
    plain = plan(64, 4096, 4096, **F32)
    assert plain["slices"] > 1 and plain["cluster_adds"]
    for options in ({"epilogue": ["bias", "gelu"]}, {"out_dtype": "bf16"}, {"out": (0, 1, 64)}):
        fields = plan(64, 4096, 4096, **F32 | options)
        assert (fields["kernel"], fields["slices"]) == (plain["kernel"], plain["slices"])


def test_the_workspace_is_the_mask():
    fields = plan(64, 4096, 4096, **F32)
    assert fields["split"] is None and fields["repack_a"] is fields["repack_b"] is None
    assert fields["recompute"]["mask_bytes"] == fields["workspace"] == 64 * 4
    recompute = rows_by_name()[fields["recompute"]["kernel"]]
    assert (recompute["input"], recompute["accumulator"]) == ("f32", "f64")
    assert recompute["tile"][:2] == (64, 64)


def test_short_sums_and_amax_go_through_f64():
    assert not takes_it(64, 4096, 128)
    assert not takes_it(64, 4096, 4096, epilogue=["amax"])
    assert takes_it(64, 4096, 128, kernel="tf32x2")


def test_a_small_operand_is_copied_where_it_is_not_k_major():
    fields = plan(64, 4096, 4096, layout="TT", **F32)
    assert "tf32x2" in fields["kernel"]
    assert (fields["repack_a"] is None) != (fields["repack_b"] is None)


def test_explain_says_what_it_does():
    text = plan(64, 4096, 4096, **F32)["explain"]
    for words in (
        "swap A/B      the operand with more rows must be the kernel's A",
        "the kernel splits operands into 2 tf32 terms; 3 products of terms",
        "accumulated in f32 every 16 of k",
        "recompute     sm90a_f32_f64_64x64x",
        "tiles with results that are Inf or NaN",
        "slices of k",
    ):
        assert words in text, words


def test_no_other_gpu_has_it():
    with pytest.raises(RuntimeError, match="no kernel"):
        plan(64, 4096, 4096, device="A100", **F32)


def test_a_weight_of_wide_range_is_not_computed_twice():
    """tcgemm.prepare has found out that it has one, and its terms are of bf16."""
    assert takes_it(200, 4096, 4096)
    assert not takes_it(200, 4096, 4096, terms_b=3)
