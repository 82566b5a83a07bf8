"""Products whose tiles stream-K divides: which they are, and that all forms have one kernel."""

import itertools

import pytest
import torch

import tcgemm
from tcgemm import info, measure

from support.plan_cases import plan

PRODUCTS = [(192, 10008, 14080), (192, 7168, 16384), (192, 11656, 9728)]
EPILOGUES = ([], ["bias"], ["bias", "gelu", "residual"], ["c", "silu"], ["z", "gelu"])
KERNEL = "sm90a_bf16_f32_128x192x64_w2_s5_tn@1/streamk^T"


def decides(fields):
    """What decides where tiles are divided. The kernel has the weight's rows as its own."""
    return [fields[name] for name in ("stream_k", "kernel", "cluster", "grid", "raster_group")]


def test_a_few_hundred_rows_that_do_not_fill_the_gpu():
    for m, n, k in PRODUCTS:
        fields = plan(m, n, k)
        assert fields["stream_k"] and fields["grid_adds"] and 0.3 < fields["waves"] < 0.9
        assert fields["grid"] in (132, 128, 120) and 2 <= fields["slices"] <= 5
        m_tile, n_tile, _ = fields["tile"]
        tiles = -(-n // m_tile) * -(-m // n_tile)
        assert fields["workspace"] >= (fields["grid"] + tiles) * m_tile * n_tile * 4
        assert "stream-K: equal parts of all k-blocks" in fields["explain"]


def test_others_have_whole_tiles_or_equal_slices():
    for m, n, k in ((4096, 4096, 4096), (16, 4096, 4096), (192, 10008, 512), (64, 64, 65536)):
        assert not plan(m, n, k)["stream_k"], (m, n, k)
    for types in ({"dtype": "tf32"}, {"dtype": "s8"}, {"device": "A100"}):
        assert not plan(*PRODUCTS[0], **types)["stream_k"], types
    with tcgemm.batch_invariant():
        assert not plan(*PRODUCTS[0])["stream_k"]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_one_kernel_computes_all_forms(dtype):
    """So z, out= and a fused term do not change bits."""
    for (m, n, k), layout in itertools.product(PRODUCTS, ("TN", "NN")):
        whole = decides(plan(m, n, k, dtype=dtype, layout=layout))
        for epilogue, out_dtype in itertools.product(EPILOGUES, (dtype, "f32")):
            for out in (None, (0, 1, m), (0, n + 1, 1)):
                options = {"dtype": dtype, "layout": layout, "out_dtype": out_dtype}
                fields = plan(m, n, k, **options, epilogue=epilogue, out=out)
                assert decides(fields) == whole, (m, n, k, layout, epilogue, out_dtype, out)


def test_two_factors_have_no_stream_k():
    """Kernels multiply by them in the order of their own operands."""
    assert plan(*PRODUCTS[0], alpha=0.5)["stream_k"]
    assert not plan(*PRODUCTS[0], alpha=0.5, scale_a="row")["stream_k"]


def test_a_name_asks_for_it():
    m, n, k = PRODUCTS[0]
    a = torch.empty(m, k, dtype=torch.bfloat16, device="meta")
    b = torch.empty(n, k, dtype=torch.bfloat16, device="meta").t()
    explained = tcgemm.explain(a, b, device="H200", kernel=KERNEL)
    assert explained.stream_k and measure.name_of(explained) == KERNEL
    planned = tcgemm.explain(a, b, device="H200")
    again = tcgemm.explain(a, b, device="H200", kernel=measure.name_of(planned))
    assert planned.fields == again.fields | {"why": planned.why}
    for name in ("64x64x64_w1", "128x96x64_w2_s7_tn", "e4m3_f32_128x256"):
        with pytest.raises(RuntimeError, match="no kernel"):
            tcgemm.explain(a, b, device="H200", kernel=f"{name}/streamk^T")


def test_as_many_tiles_as_multiprocessors_are_refused():
    with pytest.raises(RuntimeError, match="under the filter"):
        plan(192, 132 * 128, 4096, kernel=KERNEL)
    assert plan(192, 131 * 128, 4096, kernel=KERNEL)["stream_k"]


def test_a_weight_is_read_once():
    """Two columns of tiles read it at different k, so that CTAs of a cluster must share it."""
    kernel = "sm90a_bf16_f32_128x128x64_w2_s6_tn@{}/streamk^T"
    assert plan(256, 8192, 8192, kernel=kernel.format("1x2"))["stream_k"]
    with pytest.raises(RuntimeError, match="no kernel under that filter"):
        plan(256, 8192, 8192, kernel=kernel.format("2"))


def test_the_catalog_says_which_kernels():
    streaming = [row for row in info.catalog() if row["streams_k"]]
    assert {tuple(row["tile"][:2]) for row in streaming} == {
        (64, 128), (128, 128), (128, 160), (128, 192), (128, 256)
    }  # fmt: skip
    dense = [row for row in streaming if not row["weight_bits"]]
    assert all({"columns", "slices"} <= set(row["epilogue_paths"]) for row in dense)
