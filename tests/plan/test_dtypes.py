"""Plans of operands that are not 16 bits wide: what is copied, transposed or converted, scales and
zero points; and whose code of a build runs.
"""

import itertools
import re

import pytest

from tcgemm import info

from support import cases
from support.plan_cases import DEVICES, H200, Types, check_passes, plan

# Which code a GPU runs.


@pytest.mark.parametrize(
    ("arches", "runs"),
    [
        # The newest machine code of the same major version, else the newest PTX.
        ("8.0,8.0+PTX,8.9,9.0a", {80: "8.0", 86: "8.0", 89: "8.9", 90: "9.0a", 120: "8.0"}),
        ("8.0,9.0a", {75: "none", 80: "8.0", 89: "8.0", 90: "9.0a", 100: "none"}),
        ("8.6,8.9", {80: "none", 86: "8.6", 87: "8.6", 89: "8.9", 90: "none"}),
        ("8.0+PTX", {80: "8.0", 89: "8.0", 90: "8.0", 121: "8.0"}),
        ("8.0+PTX,8.9+PTX,9.0a+PTX", {86: "8.0", 89: "8.9", 90: "9.0a", 100: "8.9"}),
        # Older instructions as machine code for 9.0, and 9.0a's beside them.
        ("8.0@9.0", {80: "none", 89: "none", 90: "8.0", 100: "none"}),
        ("8.9@9.0", {89: "none", 90: "8.9"}),
        ("8.0@9.0,9.0a", {90: "9.0a"}),
        ("10.0,12.0", {90: "none", 100: "10.0", 103: "10.0", 110: "none", 121: "12.0"}),
    ],
)
def test_code_is_what_the_loader_picks(arches, runs):
    for capability, code in runs.items():
        assert info._catalog.code(capability, arches) == code, capability


def test_devices_know_their_code():
    code = {device["name"]: device["code"] for device in DEVICES}
    assert code["H200"] == code["H100"] == "9.0a"
    assert code["L40S"] == code["RTX 4090"] == "8.9"
    assert code["A100"] == code["A10"] == "8.0"
    with pytest.raises(RuntimeError, match=r"on A10, which runs this build's code for 8\.0"):
        plan(64, 64, 64, device="A10", dtype="e4m3")


# Every other dtype.


def kernel(*sizes, **options):
    return plan(*sizes, **options)["kernel"]


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
        assert made["transposed"] == transposed
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


def test_small_products_are_gathered_by_older_kernels():
    """Types that come K-major alone: an element at a time costs less than a launch."""
    made = plan(33, 17, 30, dtype="tf32", layout="NN", device="A100")
    assert made["prepare_a"] is made["prepare_b"] is None
    assert not made["vector_b"]
    assert re.search(r"\n  scalar loads +b is loaded one element at a time", made["explain"])
    made = plan(4096, 4096, 4096, dtype="tf32", layout="NN", device="A100")
    assert made["prepare_b"] is not None
    assert made["vector_a"]
    assert made["vector_b"]


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


def test_high_precision_is_tf32():
    made = plan(4096, 4096, 4096, dtype="f32", precision="high")
    assert made["kernel"].startswith("sm90a_tf32_f32_")
    assert made == plan(4096, 4096, 4096, dtype="tf32")
    assert re.search(r"\n  precision +f32 operands are rounded to tf32", made["explain"])
    assert "f32 as tf32 to f32" in made["explain"]


@pytest.mark.parametrize("device", (H200, "L40S"))
def test_fp8_is_promoted_unless_fast_is_asked_for(device):
    options = {"dtype": "e4m3", "device": device}
    assert kernel(4096, 4096, 4096, **options).endswith("_promoted")
    assert kernel(4096, 4096, 4096, precision="fast", **options).endswith("_tn")
    assert "promoted" in plan(4096, 4096, 4096, **options)["explain"]
    for scales in (("1x128", "128x128"), ("128x128", ""), ("row", "1x128")):
        made = plan(4096, 4096, 4096, scale_a=scales[0], scale_b=scales[1], **options)
        assert made["kernel"].endswith("_block_scaled")
        line = re.search(r"\n  scales +(.*), in the mainloop", made["explain"]).group(1)
        assert ("blocks of 128 x 128" in line) == ("128x128" in scales)
        assert "epilogue      only the rounding" in made["explain"]


def test_scales_of_rows_are_in_the_epilogue():
    text = plan(512, 512, 512, dtype="e4m3", scale_a="row", scale_b="tensor")["explain"]
    line = re.search(r"\n  epilogue +(.*)", text).group(1)
    assert line.startswith("scale_a (a value a row), scale_b (one value), fused")
    text = plan(512, 512, 512, dtype="s8", scale_b="row", out_dtype="f16")["explain"]
    assert "scale_b (a value a column)" in text


def test_requantised_results():
    for dtype, out in (("e4m3", "e4m3"), ("bf16", "e5m2"), ("s8", "s8")):
        made = plan(
            *(512, 512, 512),
            dtype=dtype,
            out_dtype=out,
            epilogue=["bias", "relu", "amax", "scale_out"],
        )
        line = re.search(r"\n  epilogue +(.*)", made["explain"]).group(1)
        assert line.startswith(f"bias, relu, amax, scale_out, requantised to {out}, fused")
        assert not made["store_path"].startswith("tma")


def test_zero_points_need_sums_of_the_other_operand():
    options = {"dtype": "s8", "out_dtype": "bf16", "batch": 5}
    for epilogue, a, b in (
        ([], None, None),
        (["zero_a"], None, 5),
        (["zero_b"], 5, None),
        (["zero_a", "zero_b"], 5, 5),
    ):
        made = plan(500, 300, 200, epilogue=epilogue, **options)
        assert [made[n] and made[n]["batch"] for n in ("sums_a", "sums_b")] == [a, b]
        assert made["explain"].count("\n  sums ") == len(epilogue)
    made = plan(500, 300, 208, epilogue=["zero_a"], b=(0, 1, 208), **options)
    assert made["sums_b"]["batch"] == 1
    # The passes are those of the kernel's operands, explain's those of the caller's.
    made = plan(4096, 4096, 4096, dtype="s8", layout="NN", epilogue=["zero_b"])
    assert made["transposed"]
    assert made["sums_a"] is None
    assert made["sums_b"]["rows"] == 4096
    assert "sums          of a along k" in made["explain"]


def test_sums_lie_behind_the_copies():
    made = plan(500, 300, 200, dtype="s8", epilogue=["zero_a", "zero_b"], kernel="sm90a")
    types = Types("s8", "s8", "s32", ())
    assert made["prepare_a"]
    assert made["prepare_b"]
    check_passes(made, 500, 300, 200, 1, types)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_f64_is_read_as_it_is(layout):
    for size in (64, 1000, 4095):
        made = plan(size, size, size, dtype="f64", layout=layout)
        assert made["kernel"].startswith("sm90a_f64_f64_")
        assert made["kernel"].endswith(f"_{layout.lower()}")
        assert made["prepare_a"] is made["prepare_b"] is None
        assert made["vector_a"] == made["vector_b"] == (size != 4095)


def test_rates_follow_the_dtype():
    """At 8192 every dtype is bound by its tensor cores, and no plan beats them."""
    rates = {"bf16": 989e12, "tf32": 495e12, "e4m3": 1979e12, "s8": 1979e12, "f64": 67e12}
    for dtype, peak in rates.items():
        made = plan(8192, 8192, 8192, dtype=dtype)
        assert made["bound"] == "compute"
        assert peak * 0.5 < 2 * 8192**3 / (made["microseconds"] * 1e-6) < peak
