"""emulate.mm with a packed weight: how kernels round it, and the order of their sums."""

import functools
import math
from fractions import Fraction

import pytest
import torch

import tcgemm
from tcgemm import emulate, info
from tcgemm.emulate import packed as emulated

from support import cases
from support.packed_weight_cases import CASES, IDS, Case, bits, with_exact_elements
from support.reference import same_bits

ROWS = [row for row in info.catalog() if row["weight_bits"]]
EACH_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
OF_BITS = {
    4: (
        *(Case("int4", 64), Case("int4", 32, "points"), Case("int4", None, "points")),
        *(Case("int4", 128, "offsets"), Case("nf4", 64), Case("mxfp4", 32), Case("nvfp4", 16)),
    ),
    8: (Case("int8", None), Case("int8", 32), Case("e4m3", 64)),
}


def mm(row, x, weight, **options):
    options = {"out_dtype": torch.float32, "device": "H200", "kernel": row["name"]} | options
    return emulate.mm(x, weight.t(), **options)


@EACH_ROW
def test_exact_products_are_exact(row):
    dtype = DTYPES[row["input"]]
    for case in OF_BITS[row["weight_bits"]]:
        weight = with_exact_elements(case.pack(torch.randn(24, 384).to(dtype)))
        x = torch.randint(-2, 3, (min(9, row["tile"][0]), 384)).to(dtype)
        exact = x.double() @ weight.dequantize(torch.float32).double().t()
        result = mm(row, x, weight).double()
        size = x.double().abs() @ weight.dequantize(torch.float32).double().abs().t()
        sums = 2.0**-19 if case.format in ("nf4", "e4m3") else 0.0
        assert ((result - exact).abs() <= sums * size).all(), case


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["k_groups"] > 1], ids=lambda row: row["name"]
)
def test_groups_of_warpgroups_have_every_second_block(row):
    dtype, alike = DTYPES[row["input"]], ("arch", "input", "weight_bits")
    weight = OF_BITS[row["weight_bits"]][0].pack(torch.randn(24, 640).to(dtype))
    x = torch.randn(40, 640).to(dtype)
    even = torch.arange(640) // row["tile"][2] % 2 == 0
    result = mm(row, x, weight)
    assert torch.equal(result, mm(row, x * even, weight) + mm(row, x * ~even, weight))
    rows = [entry for entry in ROWS if all(entry[name] == row[name] for name in alike)]
    one_chain = next(entry for entry in rows if entry["tile"] == (128, 128, 64))
    assert (result != mm(one_chain, x, weight)).any()


@EACH_ROW
def test_random_products_have_the_error_of_their_roundings(row):
    dtype = DTYPES[row["input"]]
    unit = 2.0**-9 if dtype is torch.bfloat16 else 2.0**-12
    for case in OF_BITS[row["weight_bits"]]:
        weight = case.pack(torch.randn(24, 384))
        x = torch.randn(8, 384).to(dtype)
        exact = weight.dequantize(torch.float32).double()
        result = mm(row, x, weight).double()
        size = x.double().abs() @ exact.abs().t()
        if weight.offsets is not None:
            size += x.double().abs().sum(1, keepdim=True) * weight.offsets.double().abs().max()
        roundings = 3 * unit if not row["gemv"] or case.format == "nf4" else 0.0
        error = (result - x.double() @ exact.t()).abs()
        assert (error <= (roundings + 2.0**-19) * size).all(), case
        assert (error > 0).any()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_scales_of_16_bits_give_the_weight_in_16_bits(case, dtype):
    weight = case.pack(torch.randn(16, 256).to(dtype))
    result = emulated.in_16_bits(weight, dtype)
    if case.format in ("nf4", "table", "nvfp4"):  # a table, or the scale of all groups, is rounded
        near = weight.dequantize(torch.float32)
        assert ((result.double() - near.double()).abs() <= 2.0**-7 * near.double().abs()).all()
    elif dtype is torch.float16 and case.format == "mxfp4":  # its scales may underflow
        assert torch.allclose(result.float(), weight.dequantize(torch.float32), atol=2.0**-20)
    else:
        assert same_bits(result, weight.dequantize(dtype))


def test_warps_of_gemv_kernels_divide_blocks():
    row = next(row for row in ROWS if row["gemv"] and row["input"] == "bf16")
    warps = row["threads"] // 32
    k = (2 * warps + 3) * 64
    weight = tcgemm.pack_weight(torch.randn(5, k), "int4", 64)
    x = torch.randn(3, k).bfloat16()

    def of_warp(warp):
        """The product where the other warps have zeros."""
        mask = torch.arange(k) // 64 % warps == warp
        return mm(row, x.where(mask, torch.zeros((), dtype=x.dtype)), weight)

    assert torch.equal(mm(row, x, weight), functools.reduce(torch.add, map(of_warp, range(warps))))
    assert not torch.equal(mm(row, x, weight), mm(row, x.flip(1), flipped(weight)))


def flipped(weight):
    """The same products in another order of k."""
    codes = torch.stack([weight.codes & 15, weight.codes >> 4], -1).flatten(1).flip(1)
    return tcgemm.PackedWeight.from_parts(
        codes[:, ::2] | codes[:, 1::2] << 4, weight.scales.flip(1), "int4", group_size=64
    )


def test_a_fused_product_and_sum_are_rounded_once():
    x, y, z = (torch.randn(2000) for _ in range(3))
    z[::2] *= 2.0**-24
    z[1::4] = -(x * y)[1::4]
    z[3::8] = (x * y)[3::8] * (1 + 2.0**-23)
    sums = emulated._fused(x, y, z)
    for a, b, c, d in zip(x.tolist(), y.tolist(), z.tolist(), sums, strict=True):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        below, above = (d.nextafter(torch.tensor(to)).item() for to in (-math.inf, math.inf))
        distance = abs(exact - Fraction(d.item()))
        assert distance <= min(abs(exact - Fraction(x_near)) for x_near in (below, above))


def test_the_epilogue_and_the_planned_kernel():
    weight = tcgemm.pack_weight(torch.randn(40, 256).half(), "int4", 64)
    for rows in (4, 40):
        x, bias = torch.randn(rows, 256).half(), torch.randn(40)
        options = {"bias": bias, "activation": "relu", "residual": torch.randn(rows, 40)}
        result = emulate.mm(x, weight.t(), **options)
        near = tcgemm.mm(x, weight.t(), out_dtype=torch.float32, **options)
        assert result.dtype is torch.float16
        assert torch.allclose(result.float(), near, rtol=2.0**-8, atol=2.0**-6)
        out, amax = emulate.mm(x, weight.t(), amax=True)
        assert amax == emulate.mm(x, weight.t(), out_dtype=torch.float32).abs().max()
        assert same_bits(out, emulate.mm(x, weight.t()))


@pytest.mark.parametrize("row", [cases.gpu(row, id=row["name"]) for row in ROWS])
def test_a_gpu_has_the_bits_of_the_emulator(row):
    name = torch.cuda.get_device_name()
    device = next((gpu["name"] for gpu in info.devices() if gpu["name"] in name), None)
    if device is None or row["name"] not in info.build()["kernels"]:
        pytest.skip(f"the planner or this build has no row for {name}")
    dtype = DTYPES[row["input"]]
    few = row["tile"][0] if row["gemv"] else 150
    for case in OF_BITS[row["weight_bits"]]:
        for n, k, rows in ((130, 384, 5), (300, 1664, few), (40, 8192, 9)):
            weight = case.pack(torch.randn(n, k))
            x = torch.randn(min(rows, few), k).to(dtype)
            order = weight.to("cuda")
            divides = row["arch"] == "sm90a" and not row["gemv"]
            for kernel in (row["name"], f"{row['name']}/3")[: 1 + divides]:
                words = order.order._asdict() | {"kernel_name": kernel}
                result = torch.ops.tcgemm.packed_mm(
                    x.cuda(), order.arranged(), out_dtype=torch.float32, **words
                )
                expected = mm(row, x, weight, device=device, kernel=kernel)
                assert torch.equal(bits(result.cpu()), bits(expected)), (case, n, k, kernel)
