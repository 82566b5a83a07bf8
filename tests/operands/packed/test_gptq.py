"""The zero points of GPTQ: two versions of the layout, symmetric files, and zero points of 0."""

import pytest
import torch

import tcgemm
from tcgemm import packed

from support import packed_weight_layouts as layouts
from support.error_asserts import error_message

N, K = 16, 256


def random_codes():
    return torch.randint(0, 16, (N, K))


def random_scales(groups):
    return (torch.rand(N, groups) + 0.1).half()


def product_is_that_of(w):
    x = torch.randn(3, w.shape[1]).half()
    assert torch.equal(tcgemm.linear(x, w), tcgemm.linear(x, w.dequantize(torch.float16)))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", [32, 64, 128, 256])
def test_gptq(size, version):
    groups = K // size
    codes, scales = random_codes(), random_scales(groups)
    # A stored zero point has four bits, so version 1 has those from 1 to 16.
    zeros = torch.randint(0, 16, (N, groups)) + (version == 1)
    zeros[0, 0] = 16 if version == 1 else 0
    qweight, qzeros = layouts.gptq(codes, zeros, version)
    g_idx = torch.arange(K, dtype=torch.int32) // size
    options = {"g_idx": g_idx, "version": version, "overflow": "keep"}
    w = packed.from_gptq(qweight, scales.t().contiguous(), qzeros, **options)
    assert (w.format, w.dtype) == ("int4", torch.float16)
    expected = layouts.grouped(codes, zeros, scales)
    assert torch.equal(w.dequantize(torch.float32), expected.float())
    product_is_that_of(w)


def test_gptq_without_zero_points():
    codes, scales = random_codes(), random_scales(2)
    qweight, qzeros = layouts.gptq(codes, torch.full((N, 2), 8), 1)
    w = packed.from_gptq(qweight, scales.t())
    assert w.zero_points is None
    with_zeros = packed.from_gptq(qweight, scales.t(), qzeros)
    assert torch.equal(w.dequantize(), with_zeros.dequantize())


@pytest.mark.parametrize("stored", [7, 8])
@pytest.mark.parametrize("version", [1, 2])
def test_zero_points_of_a_symmetric_file(version, stored):
    """Programs write 8 everywhere and name it version 1, or 7 and name it version 2."""
    codes, scales = random_codes(), random_scales(2)
    qweight, _ = layouts.gptq(codes, torch.full((N, 2), 8), 1)
    qzeros = layouts.pack_columns([[stored] * N] * 2)
    middle = packed.from_gptq(qweight, scales.t())
    arguments = (qweight, scales.t(), qzeros)
    w = packed.from_gptq(*arguments, version=version, sym=True)
    assert w.zero_points is None and torch.equal(w.codes, middle.codes)
    zero = stored + 2 - version
    if zero == 8:
        for sym in (None, False):
            w = packed.from_gptq(*arguments, version=version, sym=sym)
            assert w.zero_points is None and torch.equal(w.codes, middle.codes)
        return
    text = error_message(lambda: packed.from_gptq(*arguments, version=version), RuntimeError)
    assert text == (
        f"tcgemm.packed.from_gptq: qzeros holds {stored} alone, so in version {version} every zero "
        f"point is {zero}, but a symmetric file of version {3 - version} holds {stored}; pass "
        f"sym=True or version={3 - version} if every zero point is 8, or sym=False if it is {zero}."
    )
    w = packed.from_gptq(*arguments, version=version, sym=False)
    zeros = torch.full((N, 2), zero)
    assert torch.equal(w.dequantize(torch.float32), layouts.grouped(codes, zeros, scales).float())


def test_a_zero_point_of_0_in_version_1():
    """GPTQModel subtracts 1 of each four bits from the word, and others from each zero point."""
    codes, scales = random_codes(), random_scales(2)
    zeros = torch.randint(0, 15, (N, 2))
    zeros[0], zeros[1], zeros[15] = 0, 5, 0  # a carry inside of a word and out of it
    qweight, qzeros = layouts.gptq(codes, zeros, 2)
    whole = (qzeros.long() - 0x11111111).to(torch.int32)
    w = packed.from_gptq(qweight, scales.t(), whole, overflow="carry")
    assert torch.equal(w.dequantize(torch.float32), layouts.grouped(codes, zeros, scales).float())
    _, each = layouts.gptq(codes, torch.where(zeros == 0, 16, zeros), 1)
    for overflow, expected in (("wrap", zeros), ("keep", torch.where(zeros == 0, 16, zeros))):
        w = packed.from_gptq(qweight, scales.t(), each, overflow=overflow)
        values = layouts.grouped(codes, expected, scales).float()
        assert torch.equal(w.dequantize(torch.float32), values)
    text = error_message(lambda: packed.from_gptq(qweight, scales.t(), each), RuntimeError)
    assert text == (
        f"tcgemm.packed.from_gptq: qzeros of version 1 holds 15 at {int((zeros == 0).sum())} of 32 "
        "places, which programs read as the zero point 16 or 0; pass overflow='keep' for 16, "
        "'wrap' for 0, or 'carry' if GPTQModel converted the file from version 2."
    )


QWEIGHT, SCALES = torch.zeros(K // 8, N, dtype=torch.int32), torch.ones(2, N)
QZEROS = torch.zeros(2, N // 8, dtype=torch.int32)
ERRORS = {
    "version": (
        lambda: packed.from_gptq(QWEIGHT, SCALES, version=3),
        "tcgemm.packed.from_gptq: version is 3, but there are 1 (the format 'gptq') and 2 "
        "('gptq_v2'); pass one of these.",
    ),
    "overflow": (
        lambda: packed.from_gptq(QWEIGHT, SCALES, overflow="saturate"),
        "tcgemm.packed.from_gptq: overflow is 'saturate', but it must be one of 'error', 'keep', "
        "'wrap', 'carry'; pass one of these.",
    ),
    "sym": (
        lambda: packed.from_gptq(QWEIGHT, SCALES, sym="yes"),
        "tcgemm.packed.from_gptq: sym is 'yes', but it must be True, False or None; pass the "
        "'sym' of the checkpoint's config.",
    ),
    "sym with other zero points": (
        lambda: packed.from_gptq(QWEIGHT, SCALES, QZEROS, sym=True),
        "tcgemm.packed.from_gptq: sym is True, so qzeros must hold 7 or 8 alone, but it holds "
        "numbers from 0 to 0; pass sym=False if the zero points are part of the weight, or "
        "qzeros=None if they are to be ignored.",
    ),
}


@pytest.mark.parametrize(("call", "text"), ERRORS.values(), ids=ERRORS)
def test_arguments_are_checked(call, text):
    assert error_message(call, RuntimeError) == text
