"""The planner takes what tcgemm.tune has chosen, where it fits; explain and the emulator say so."""

import pytest
import torch

import tcgemm
from tcgemm import info
from tcgemm.ops import query, tuned

from support.plan_cases import H200, plan

ROW = "sm90a_bf16_f32_64x128x64_w1_s8_tn"
KERNEL = f"{ROW}@1/5"
LIKE = (  # the same product
    *({"epilogue": terms} for terms in ([], ["bias"], ["c", "silu"], ["amax"])),
    *({"epilogue": ["bias", "gelu", "residual"]}, {"scale_a": "row", "scale_b": "row"}),
    *({"out_dtype": "f32"}, {"out_dtype": "e4m3"}, {"alpha": 2.0}),
    *({"out_address": 4}, {"out": (0, 4097, 1)}),
)
OTHERS = (
    *({"m": 17}, {"n": 4104}, {"k": 14344}, {"batch": 2}),
    *({"dtype": "f16"}, {"layout": "NN"}, {"sparse": "b"}),
    *({"a_address": 8}, {"a": (0, 14337, 1)}),
    *({"device": "H100"}, {"device": "A100"}),
)
NOT_TUNED = (
    *({"dtype": "f32"}, {"dtype": "f32", "precision": "medium"}),
    *({"a": (0, 40000, 2)}, {"k": 0}),
)
NOT_FITTING = (
    ({"m": 64, "k": 512}, "sm90a_bf16_f32_64x64x64_w1_s12_nn@1/1"),  # another layout
    ({"m": 64, "k": 512}, "sm90a_f16_f32_64x64x64_w1_s12_tn@1/1"),  # other operands
    ({"m": 64, "k": 512}, "sm90a_e4m3_f32_64x64x128_w1_s12_tn_promoted@1/1"),
    ({"k": 128}, f"{ROW}@1/3"),  # two k-blocks
)
NO_KERNELS = (
    *("", ROW, f"{ROW}@1", f"{ROW}/2@1", f"{ROW}@1/0", f"{ROW}@1/65", "sm@1/1"),
    f"{ROW}_no_such@1/1",
)


def choose(kernel: str = KERNEL, product: str = "") -> bool:
    return query.ask("_set_tuned", H200, product or asked()["product"], kernel)


def kernel_of(choice) -> str:
    return f"{choice['kernel']}@{choice['cluster']}/{choice['slices']}"


def asked(**options):
    return plan(**{"m": 16, "n": 4096, "k": 14336, "dtype": "bf16", **options})


def test_a_choice_is_taken_and_told():
    before = asked()
    assert not before["tuned"] and ROW not in before["kernel"]
    assert before["product"] == "bf16 (accumulator f32), TN, m 16 n 4096 k 14336"
    a, b = torch.empty(16, 14336).bfloat16(), torch.empty(4096, 14336).bfloat16().t()
    explanation = tcgemm.explain(a, b, device=H200)
    assert explanation.tuned is False and explanation.product == before["product"]
    assert choose()
    choice = asked()
    assert (kernel_of(choice), choice["tuned"]) == (KERNEL, True)
    assert choice["why"] == "tcgemm.tune measured the shortest time with it"
    assert "tuned         kernel, cluster and slices of k, by tcgemm.tune" in choice["explain"]
    explanation = tcgemm.explain(a, b, device=H200)
    assert (explanation.kernel, explanation.slices, explanation.tuned) == (ROW, 5, True)
    tuned.forget()
    assert asked() == before  # although the tuned plan was remembered


@pytest.mark.parametrize("change", [*LIKE, *OTHERS], ids=str)
def test_the_result_scales_and_epilogue_do_not_matter(change):
    before = asked(**change)
    choose()
    if change in LIKE:
        assert kernel_of(asked(**change)) == KERNEL
    else:
        assert asked(**change) == before and not before["tuned"]


def test_a_column_major_result_has_the_slices():
    """They decide bits, which must not depend on the strides of out."""
    choose()
    choice = asked(out=(0, 1, 16))
    assert choice["slices"] == 5 and not choice["tuned"] and choice["swap_ab"]
    assert "tuned         the slices of k alone" in choice["explain"]


@pytest.mark.parametrize(("change", "kernel"), [*NOT_FITTING, *(({}, name) for name in NO_KERNELS)])
def test_a_choice_that_does_not_fit_is_not_taken(change, kernel):
    before = asked(**change)
    assert choose(kernel, before["product"]) == (kernel not in NO_KERNELS)
    assert asked(**change) == before


def test_batch_invariant_ignores_choices_and_a_filter_is_stronger():
    with tcgemm.batch_invariant():
        before = asked()
    choose()
    with tcgemm.batch_invariant():
        assert asked() == before
    assert asked()["tuned"]
    choice = asked(kernel="64x128x64_w1_s8_tn@1/2")
    assert "64x128x64" in choice["kernel"] and choice["slices"] == 2 and not choice["tuned"]


def test_what_is_not_tuned_has_no_name():
    assert {asked(**options)["product"] for options in NOT_TUNED} == {""}


def test_sparse_products_take_choices_of_either_major():
    rows = [row for row in info.catalog() if row["name"].startswith("sm90a_bf16_f32_128x64x64")]
    row = next(row["name"] for row in rows if row["sparse"] and row["layout"] == "TN")
    before = asked(sparse="b")
    assert before["product"].startswith("bf16 (accumulator f32), b 2:4, TN") and row not in before
    choose(f"{row}@2/1", before["product"])
    assert kernel_of(asked(sparse="b")) == f"{row}@2/1"
    assert kernel_of(asked(sparse="b", out=(0, 1, 16))) == f"{row}@2/1"


SWAPPED = "sm90a_bf16_f32_128x128x64_w2_s6_tn@1/1^T"
# Without a kernel for results of 32 bits in the swapped orientation, or without any other kernel.
BY_COLUMNS = (
    "sm90a_bf16_f32_128x144x64_w2_s5_tn@2/1^T",
    "sm90a_bf16_f32_64x80x64_w1_s12_tn@1/1^T",
)


@pytest.mark.parametrize(
    "kernel", (SWAPPED, "sm90a_bf16_f32_128x128x64_w2_s6_tn@2x2/1^T", *BY_COLUMNS)
)
def test_a_swapped_choice_is_taken(kernel):
    before = asked(m=64, k=512)
    assert choose(kernel, before["product"])
    for change in ({}, {"epilogue": ["bias", "gelu", "residual"]}, {"out_dtype": "f16"}):
        choice = asked(m=64, k=512, **change)
        assert kernel_of(choice) + "^T" == kernel and choice["tuned"] and choice["swap_ab"]
        assert choice["epilogue_path"] == "columns"


@pytest.mark.parametrize("kernel", (SWAPPED, *BY_COLUMNS))
@pytest.mark.parametrize("change", ({"out_dtype": "f32"}, {"epilogue": ["c", "residual"]}), ids=str)
def test_a_swapped_choice_leaves_other_results_to_kernels_that_store_rows(kernel, change):
    """A swapped kernel would store them element by element."""
    choose(kernel, asked(m=64, k=512)["product"])
    choice = asked(m=64, k=512, **change)
    assert choice["store_path"] == "tma_rows" and choice["slices"] == 1 and not choice["tuned"]
