"""Products whose k the planner divides into slices, and what the number of slices depends on."""

import itertools

import pytest
import torch

import tcgemm

from support.plan_cases import plan

LONG = [(64, 64, 65536), (128, 128, 32768), (100, 1000, 10000)]
LONG += [(512, 512, 32768), (16, 4096, 14336)]
TYPES = [
    {"dtype": "bf16"},
    {"dtype": "f16", "accumulator": "f16"},
    {"dtype": "tf32"},
    {"dtype": "e4m3"},
    {"dtype": "e4m3", "precision": "fast"},
    {"dtype": "e4m3", "scale_a": "1x128", "scale_b": "128x128"},
    {"dtype": "s8"},
]
EPILOGUES = ([], ["bias"], ["bias", "gelu", "residual"], ["c", "silu"])


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_a_long_k_is_divided(types):
    for m, n, k in LONG[:3]:
        made = plan(m, n, k, **types)
        assert made["slices"] > 1, (m, n, k)
        assert made["workspace"] >= made["slices"] * m * n * 4
        assert made["grid"] > plan(m, n, k, **types, kernel=made["kernel"])["grid"]
        assert f"slices of k   {made['slices']}, whose sums another kernel adds" in made["explain"]


def test_enough_tiles_are_not_divided():
    for m, n, k in ((4096, 4096, 4096), (2048, 2048, 65536), (64, 28672, 4096), (1024, 1024, 512)):
        assert plan(m, n, k)["slices"] == 1, (m, n, k)


@pytest.mark.parametrize("options", [{"dtype": "f64"}, {"dtype": "f32"}], ids=str)
def test_others_are_not_divided(options):
    assert plan(64, 64, 65536, **options)["slices"] == 1


def test_no_other_gpu_divides_k():
    assert plan(64, 64, 65536, device="A100")["slices"] == 1


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_the_epilogue_and_the_result_do_not_change_the_slices(types):
    """So z, out= and a fused term do not change bits."""
    for m, n, k in LONG:
        plain = plan(m, n, k, **types)["slices"]
        integers = types["dtype"] == "s8"
        for epilogue, out in itertools.product(EPILOGUES, (None, (0, 1, m), (0, n + 1, 1))):
            given = types | ({"out_dtype": "bf16"} if integers else {})
            assert plan(m, n, k, **given, epilogue=epilogue, out=out)["slices"] == plain, (m, n, k)


def test_a_filter_asks_for_slices():
    made = plan(64, 64, 4096, kernel="64x64x64_w1_s12_tn/8")
    assert made["slices"] == 8
    assert plan(64, 64, 4096, kernel="64x64x64_w1_s12_tn")["slices"] == 1
    assert plan(200, 64, 4096, kernel="64x64x64_w1_s12_tn@2/8")["cluster"] == 2
    with pytest.raises(RuntimeError, match="under the filter"):
        plan(64, 64, 128, kernel="64x64x64_w1_s12_tn/3")  # two k-blocks


def test_batch_invariant_has_one_slice():
    a, b = torch.empty(64, 65536).bfloat16(), torch.empty(64, 65536).bfloat16().t()
    assert tcgemm.explain(a, b, device="H200").slices > 1
    with tcgemm.batch_invariant():
        with tcgemm.batch_invariant():
            assert tcgemm.explain(a, b, device="H200").slices == 1
        assert tcgemm.explain(a, b, device="H200").slices == 1
        assert plan(64, 64, 65536)["slices"] == 1
    assert tcgemm.explain(a, b, device="H200").slices > 1


def test_few_rows_fill_the_gpu():
    """By tiles whose width divides the columns so, or by two slices that a cluster adds."""
    for n, width, slices in ((4096, 64, 2), (6144, 48, 1), (28672, 224, 1)):
        for m in (1, 16, 64):
            made = plan(m, n, 4096)
            assert (made["tile"][1], made["slices"], made["grid"]) == (width, slices, 128)
            assert made["cluster_adds"] == (slices > 1)
