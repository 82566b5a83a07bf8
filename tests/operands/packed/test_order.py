"""The open layout and the device order of packed weights, element by element."""

import numpy as np
import pytest
import torch

import tcgemm
from tcgemm.operands.packed.arrange import arranged, parts_of

from support import packed_weight_order
from support.cases import DEVICES
from support.packed_weight_cases import CASES, IDS, Case, bits

WORDS = {"int4": "int4", "int8": "int8", "e4m3": "e4m3"}  # of the operator; others are tables


def unsigned(packed):
    """The codes (n, k) as the device order has them."""
    n, k = packed.shape
    if packed.codes.dtype is not torch.uint8:
        return packed.codes.view(torch.uint8).tolist()
    signed = packed.format == "int4" and packed.zero_points is packed.offsets is None
    return [
        [packed_weight_order.code(packed.codes, row, column) ^ 8 * signed for column in range(k)]
        for row in range(n)
    ]


def expected_order(packed):
    n, k = packed.shape
    scales = packed.scales.float()
    if packed.global_scale is not None:
        scales = scales * packed.global_scale
    second = packed.offsets if packed.zero_points is None else packed.zero_points
    return packed_weight_order.device_order(
        unsigned(packed),
        scales.numpy(),
        n,
        k,
        WORDS.get(packed.format, "table4"),
        packed.group_size or 0,
        None if second is None else second.float().numpy(),
        packed.table,
    )


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_device_order_is_that_of_the_definition(case):
    packed = case.pack(torch.randn(136, 256 if case.group_size == 128 else 192))
    assert np.array_equal(packed.arranged().numpy(), expected_order(packed))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (130, 65), (16, 127), (0, 64), (5, 0), (0, 0)])
@pytest.mark.parametrize("zeros", ["none", "points", "offsets"])
def test_device_order_of_whole_rows_of_any_length(shape, zeros):
    packed = Case("int4", None, zeros).pack(torch.randn(shape))
    assert np.array_equal(packed.arranged().numpy(), expected_order(packed))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_inverse_of_the_device_order(case, device):
    packed = case.pack(torch.randn(136, 256, device=device))
    parts, layout = parts_of(packed.arranged(), packed.order, 256)
    assert torch.equal(bits(parts.codes), bits(packed.codes))
    words = arranged(parts, layout)
    assert torch.equal(words, packed.arranged())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_device_has_the_bits_of_the_cpu(case, device):
    w = torch.randn(136, 256)
    on_cpu, on_device = case.pack(w), case.pack(w.to(device))
    for name in ("codes", "scales", "zero_points", "offsets", "table", "global_scale"):
        a, b = getattr(on_cpu, name), getattr(on_device, name)
        assert (a is None and b is None) or torch.equal(bits(a), bits(b.cpu())), name
    assert torch.equal(on_cpu.arranged(), on_device.arranged().cpu())
    assert torch.equal(on_cpu.dequantize(), on_device.dequantize().cpu())


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_dequantize_is_the_definition(case):
    packed = case.pack(torch.randn(5, 128).bfloat16())
    expected = packed_weight_order.dense(packed)
    values = packed.dequantize(torch.float32)
    if case.zeros == "offsets":  # a sum, which float32 rounds
        assert torch.allclose(values.double(), expected, rtol=0, atol=2.0**-22)
    else:
        assert torch.equal(values, expected.float())
    for dtype in (torch.float16, torch.bfloat16):
        assert torch.equal(packed.dequantize(dtype), values.to(dtype))


def test_an_odd_row_leaves_the_last_bits_zero():
    packed = tcgemm.pack_weight(torch.full((3, 5), -1.0), "int4", None)
    assert packed.codes.shape == (3, 3)
    assert (packed.codes[:, -1] >> 4 == 0).all()
    assert torch.equal(packed.dequantize(), torch.full((3, 5), -1.0))


@pytest.mark.parametrize("rows", [1, 128, 300])
def test_large_weights_are_arranged_in_pieces(rows, monkeypatch):
    packed = tcgemm.pack_weight(torch.randn(rows, 96), "int4", 32)
    whole = arranged(packed.stored.parts, packed.stored.layout)
    dense = packed.dequantize()
    monkeypatch.setattr("tcgemm.operands.packed.arrange._CHUNK", 96 * 128)
    monkeypatch.setattr("tcgemm.operands.packed.codes.row_chunks.__defaults__", (96 * 7,))
    assert torch.equal(arranged(packed.stored.parts, packed.stored.layout), whole)
    assert torch.equal(packed.dequantize(), dense)
