"""Plans of int4 and of bits: sizes in memory, conversions, copies and sums."""

import itertools

import pytest

from tcgemm import info

from support.catalog_rows import SUBBYTE
from support.plan_cases import DEVICES, H200, has_code, plan, rows_by_name

INT4 = ("s4", "u4")
HOPPER = ("H200", "H100")
OLDER = tuple(device["name"] for device in DEVICES if device["name"] not in HOPPER)


def test_bytes_are_those_of_the_elements():
    """Each operand is read once, and the result of int32 is written."""
    for dtype, bits in (("s4", 4), ("u4", 4), ("b1", 1)):
        fields = plan(4096, 2048, 8192, dtype=dtype, device="A100")
        assert fields["bytes"] == (4096 + 2048) * 8192 * bits / 8 + 4096 * 2048 * 4
        assert fields["workspace"] == 0


@pytest.mark.parametrize("device", OLDER)
def test_older_gpus_multiply_int4_as_it_is(device):
    for a, b in itertools.product(INT4, INT4):
        fields = plan(4096, 4096, 4096, dtype=a, dtype_b=b, device=device)
        assert fields["kernel"].startswith(f"sm80_{a}_" if a == b else f"sm80_{a}x{b}_")
        assert fields["repack_a"] is fields["repack_b"] is None


@pytest.mark.parametrize("device", HOPPER)
def test_hopper_converts_int4_to_int8(device):
    for a, b in itertools.product(INT4, INT4):
        fields = plan(4096, 2048, 1000, dtype=a, dtype_b=b, device=device)
        assert fields["kernel"].startswith("sm90a_s8_s32_")
        end = 0
        for name, rows in (("a", 4096), ("b", 2048)):
            copy = fields[f"repack_{name}"]
            assert copy["to"] == "s8"
            assert (copy["rows"], copy["k"]) == (rows, 1000)
            assert copy["pitch"] == 1008
            assert copy["offset"] == end
            end += rows * 1008
        assert fields["workspace"] == end
        assert "int4 operands are multiplied as s8" in fields["explain"]
        assert "4.1 MB out" in fields["explain"] or "4.13 MB out" in fields["explain"]


@pytest.mark.parametrize("device", HOPPER)
def test_hopper_multiplies_bits_as_they_are(device):
    """With a short K the stores take as long as the products, and pingpong hides them."""
    long = plan(8192, 8192, 65536, dtype="b1", device=device)
    assert (long["tile"], long["kernel"][-3:]) == ((128, 256, 1024), "_tn")
    fields = plan(8192, 8192, 8192, dtype="b1", device=device)
    assert fields["kernel"].startswith("sm90a_b1_s32_128x192x1024")
    assert fields["kernel"].endswith("_pingpong")
    assert fields["repack_a"] is fields["repack_b"] is None
    assert fields["store_path"] == "tma_rows"


def test_rows_of_bits_that_are_no_vectors_are_copied_as_bytes():
    fields = plan(8192, 8192, 8000, dtype="b1", a=(0, 8008, 1), b=(0, 1, 8064))
    assert fields["repack_b"] is None
    copy = fields["repack_a"]
    assert copy["to"] == "b1"
    assert copy["k"] == 8000
    assert copy["pitch"] == 8064  # 1000 bytes, to a multiple of 16
    assert fields["workspace"] == 8192 * 8064 // 8
    assert "a multiple of 128 elements" in fields["check_layout"]
    # 1024 bytes and more are padded to lines of 128 bytes.
    assert plan(8192, 8192, 8200, dtype="b1", a=(0, 8200, 1))["repack_a"]["pitch"] == 9216


def test_zero_points_of_int4_need_sums():
    for device in (H200, "A100"):
        fields = plan(512, 256, 1024, dtype="s4", device=device, epilogue=["zero_a", "zero_b"])
        assert (fields["sums_a"]["rows"], fields["sums_a"]["k"]) == (512, 1024)
        assert (fields["sums_b"]["rows"], fields["sums_b"]["k"]) == (256, 1024)


def test_every_subbyte_kernel_can_be_asked_for():
    for name, row in rows_by_name().items():
        if row["input"] not in SUBBYTE:
            continue
        for device in DEVICES:
            if row["shared_bytes"] > device["shared_bytes"] or not has_code(device, row["arch"]):
                continue
            types = {"dtype": row["input"], "dtype_b": row["input_b"]}
            fields = plan(1024, 1024, 2048, device=device["name"], kernel=name, **types)
            assert fields["kernel"] == name
            assert fields["repack_a"] is fields["repack_b"] is None


def test_every_size_has_a_plan():
    sizes = (1, 2, 8, 30, 64, 130, 1000, 4096)
    for dtype, device in itertools.product(("s4", "u4", "b1"), DEVICES):
        for m, n, k in itertools.product(sizes[::2], sizes[1::2], sizes):
            k += k % 2 if dtype != "b1" else 0
            fields = plan(m, n, k, device=device["name"], dtype=dtype)
            assert fields["grid"] >= 1
            assert fields["microseconds"] > 0


def test_the_table_of_instructions_has_those_of_the_kernels():
    instructions = {(row["family"], row["input"], row["shape"]) for row in info.instructions()}
    assert ("mma.sync", "s4", (16, 8, 64)) in instructions
    assert ("mma.sync", "b1", (16, 8, 256)) in instructions
    assert ("wgmma", "b1", (64, 256, 256)) in instructions
