"""Plans of products with a sparse operand: which GPUs have kernels, whose a it is, and what keeps
TMA from it but not cp.async.
"""

import itertools
import re

import pytest

from support.plan_cases import DEVICES, FP8, H200, INT8, plan, rows_by_name

A100 = "A100"
PAIRS = (("bf16", "bf16"), ("f16", "f16"), ("tf32", "tf32"), *itertools.product(INT8, INT8))
SIZES = ((4096, 4096, 4096), (100, 33, 50), (1, 1, 1), (17, 4096, 1 << 16), (4096, 1, 64))


def row_of(fields, types, side):
    """The row of a plan, whose a is the sparse operand."""
    row = rows_by_name()[fields["kernel"]]
    assert row["sparse"] == ("1:2" if types[0] == "tf32" else "2:4")
    assert fields["swap_ab"] == (side == "b")
    assert (row["input"], row["input_b"]) == (types if side == "a" else types[::-1])
    return row


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device["name"])
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_every_gpu_has_a_plan(device, types):
    for (m, n, k), layout, side in itertools.product(SIZES, ("TN", "NN", "TT"), "ab"):
        options = {"dtype": types[0], "dtype_b": types[1], "layout": layout, "sparse": side}
        fields = plan(m, n, k, device=device["name"], **options)
        row = row_of(fields, types, side)
        assert row["arch"] == "sm80" or device["name"] in ("H100", H200)
        assert row["shared_bytes"] <= device["shared_bytes"]
        tile_m, tile_n, _ = row["tile"]
        if row["arch"] == "sm80":
            rows, columns = (n, m) if fields["swap_ab"] else (m, n)
            assert fields["grid"] == -(-rows // tile_m) * -(-columns // tile_n)
            assert fields["cluster"] == 1


@pytest.mark.parametrize("dtype", FP8)
def test_fp8_is_hoppers(dtype):
    assert plan(4096, 4096, 4096, dtype=dtype, sparse="a")["kernel"].startswith("sm90a_")
    sentence = rf"multiplies {dtype} .*, one of them sparse, on .*; there is bf16 .*to_dense\(\)"
    for device in (A100, "L40S"):
        with pytest.raises(RuntimeError, match=sentence):
            plan(64, 64, 64, device=device, dtype=dtype, sparse="a")


@pytest.mark.parametrize("side", "ab")
def test_large_products_take_wgmma_on_hopper(side):
    for dtype in ("bf16", "f16", "tf32", "s8"):
        fields = plan(4096, 4096, 4096, dtype=dtype, sparse=side)
        assert fields["kernel"].startswith("sm90a_")
        assert fields["repack_a"] is fields["repack_b"] is None


@pytest.mark.parametrize("device", (A100, "RTX 4090"))
def test_a_sparse_operand_pays(device):
    for dtype in ("bf16", "tf32", "s8"):
        dense, sparse = (
            plan(8192, 8192, 8192, device=device, dtype=dtype, sparse=side)["microseconds"]
            for side in ("", "a")
        )
        assert sparse < 0.85 * dense


@pytest.mark.parametrize("rows", (1, 15, 17, 100, 4095))
def test_any_rows_are_read_in_words(rows):
    """Tensor maps read sixteen at a time, which is no affair of cp.async."""
    for dtype, (m, n, side) in itertools.product(
        ("bf16", "tf32", "s8"), ((rows, 512, "a"), (512, rows, "b"))
    ):
        fields = plan(m, n, 1024, device=A100, dtype=dtype, sparse=side)
        assert fields["vector_a"]
        assert fields["vector_b"]
        assert fields["repack_a"] is fields["repack_b"] is None
        assert "scalar loads" not in fields["explain"]
    fields_of_a = plan(rows, 4096, 16384, sparse="a", kernel="sm90a")
    assert bool(fields_of_a["repack_a"]) == (rows % 16 != 0)


@pytest.mark.parametrize("device", (A100, H200))
@pytest.mark.parametrize("dtype", ("bf16", "tf32"))
def test_values_of_any_strides(device, dtype):
    """Values along m are copied, or gathered where that costs less."""
    along_m = {"dtype": dtype, "device": device, "sparse": "a"}
    fields = plan(4096, 4096, 4096, a=(0, 1, 4096), **along_m)
    assert fields["repack_a"] is not None
    reason = "tensor cores read the values of a sparse operand K-major only"
    assert reason in " ".join(fields["explain"].split())
    fields = plan(48, 16, 64, a=(0, 1, 48), kernel="sm80", **along_m)
    assert fields["repack_a"] is None
    assert not fields["vector_a"]
    assert re.search(rf"\n  scalar loads +a is loaded one .*: {reason}", fields["explain"])


def test_rows_of_the_other_operand_may_be_ragged():
    fields = plan(64, 64, 4 * 33, device=A100, sparse="b")
    assert fields["kernel"].endswith("_tn_sparse")
    assert "2:4 along k" in fields["explain"]
    assert "sm80: cp.async and mma.sync" in fields["check_layout"]


def test_tma_stores_columns():
    """b^T a^T is computed: rows of the result are columns there. Other types, and
    results with an epilogue, are stored in pairs."""
    columns, pairs = "by TMA, column-major", "in pairs along columns"
    for options, phrase in (
        ({}, columns),
        ({"out_dtype": "f16"}, pairs),
        ({"out_dtype": "f16", "dtype": "f16"}, columns),
        ({"dtype": "e4m3", "precision": "fast"}, columns),
        ({"dtype": "e4m3", "precision": "fast", "out_dtype": "f16"}, pairs),
        ({"dtype": "s8"}, pairs),
        ({"dtype": "s8", "out_dtype": "bf16"}, columns),
        ({"out": (0, 520, 1)}, columns),
        ({"out_dtype": "f32"}, pairs),
        ({"alpha": 2.0}, pairs),
        ({"epilogue": ["bias"]}, pairs),
        ({"out": (0, 513, 1)}, "element by element"),
        ({"out": (0, 1, 512)}, "by TMA\n"),
    ):
        fields = plan(512, 512, 512, sparse="b", kernel="128x128", **options)
        assert phrase in fields["explain"], (options, fields["explain"])
        assert fields["store_path"].startswith("tma") == (phrase in (columns, "by TMA\n"))
    narrow = plan(16, 512, 512, sparse="b", kernel="128x32x")
    assert pairs in narrow["explain"]


def test_a_wider_tile_saves_a_wave():
    """2112 x 2048 is 121 tiles of 192x192 and 136 of 128x256, of 132 multiprocessors."""
    assert "_192x192x" in plan(2048, 2112, 7168, sparse="b")["kernel"]
    assert "_128x256x" in plan(4096, 4096, 4096, sparse="b")["kernel"]
