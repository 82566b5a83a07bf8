"""Plans with scales, zero points and narrow results, and the precision that they follow."""

import re

import pytest

from support.plan_cases import (
    H200,
    Types,
    check_passes,
    plan,
)


def kernel(*sizes, **options):
    return plan(*sizes, **options)["kernel"]


def test_high_precision_is_tf32():
    fields = plan(4096, 4096, 4096, dtype="f32", precision="high")
    assert fields["kernel"].startswith("sm90a_tf32_f32_")
    assert re.search(r"\n  precision +f32 operands are rounded to tf32", fields["explain"])
    assert "f32 as tf32 to f32" in fields["explain"]


@pytest.mark.parametrize("device", (H200, "L40S"))
def test_fp8_is_promoted_unless_fast_is_asked_for(device):
    options = {"dtype": "e4m3", "device": device}
    assert kernel(4096, 4096, 4096, **options).endswith("_promoted")
    assert kernel(4096, 4096, 4096, precision="fast", **options).endswith("_tn")
    assert "promoted" in plan(4096, 4096, 4096, **options)["explain"]
    for scales in (("1x128", "128x128"), ("128x128", ""), ("row", "1x128")):
        fields = plan(4096, 4096, 4096, scale_a=scales[0], scale_b=scales[1], **options)
        assert fields["kernel"].endswith("_block_scaled")
        line = re.search(r"\n  scales +(.*), in the mainloop", fields["explain"]).group(1)
        assert ("blocks of 128 x 128" in line) == ("128x128" in scales)
        assert "epilogue      only the rounding" in fields["explain"]


@pytest.mark.parametrize("scale_b", ("128x128", "1x128"))
def test_large_products_with_scales_of_blocks_take_three_warpgroups(scale_b):
    options = {"dtype": "e4m3", "scale_a": "1x128", "scale_b": scale_b}
    for m, n, k in ((8192, 8192, 8192), (4096, 14336, 4096), (4096, 2112, 7168)):
        assert "_192x128x128_w3_" in kernel(m, n, k, **options), (m, n, k)
    assert "_w3_" not in kernel(2048, 2048, 4096, **options)  # one wave of 128x256 or 128x128


def test_scales_of_rows_are_in_the_epilogue():
    text = plan(512, 512, 512, dtype="e4m3", scale_a="row", scale_b="tensor")["explain"]
    line = re.search(r"\n  epilogue +(.*)", text).group(1)
    assert line.startswith("scale_a (a value a row), scale_b (one value), fused")
    text = plan(512, 512, 512, dtype="s8", scale_b="row", out_dtype="f16")["explain"]
    assert "scale_b (a value a column)" in text


def test_requantised_results():
    for dtype, out in (("e4m3", "e4m3"), ("bf16", "e5m2"), ("s8", "s8")):
        epilogue = ["bias", "relu", "amax", "scale_out"]
        fields = plan(512, 512, 512, dtype=dtype, out_dtype=out, epilogue=epilogue)
        line = re.search(r"\n  epilogue +(.*)", fields["explain"]).group(1)
        assert line.startswith(f"bias, relu, amax, scale_out, requantised to {out}, fused")
        assert fields["store_path"] in ("vectors", "tma_columns")


def test_zero_points_need_sums_of_the_other_operand():
    options = {"dtype": "s8", "out_dtype": "bf16", "batch": 5}
    for epilogue, a, b in (
        ([], None, None),
        (["zero_a"], None, 5),
        (["zero_b"], 5, None),
        (["zero_a", "zero_b"], 5, 5),
    ):
        fields = plan(500, 300, 200, epilogue=epilogue, **options)
        assert [fields[n] and fields[n]["batch"] for n in ("sums_a", "sums_b")] == [a, b]
        assert fields["explain"].count("\n  sums ") == len(epilogue)
    fields = plan(500, 300, 208, epilogue=["zero_a"], b=(0, 1, 208), **options)
    assert fields["sums_b"]["batch"] == 1
    # The plan has the passes of the kernel's operands, explain of the caller's operands.
    fields = plan(4096, 4096, 4096, dtype="s8", layout="NN", epilogue=["zero_b"])
    assert fields["swap_ab"]
    assert fields["sums_a"] is None
    assert fields["sums_b"]["rows"] == 4096
    assert "sums          of a along k" in fields["explain"]


def test_sums_lie_behind_the_copies():
    fields = plan(500, 300, 200, dtype="s8", epilogue=["zero_a", "zero_b"], kernel="sm90a")
    types = Types("s8", "s8", "s32", ())
    assert fields["repack_a"]
    assert fields["repack_b"]
    check_passes(fields, 500, 300, 200, 1, types)
