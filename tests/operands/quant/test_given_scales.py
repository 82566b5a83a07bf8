"""quantize with given scales, against its definition in torch's operators."""

import pytest
import torch
from torch.func import vmap
from torch.library import opcheck

import tcgemm

from support.cases import DEVICES, FLOATS, make

E4M3, E5M2, S8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
LIMIT = {E4M3: 448.0, E5M2: 57344.0, S8: 127.0}
GRANULARITIES = ("tensor", "row", "1x128", "128x128")


def bits(tensor):
    return tensor.cpu().view(torch.uint8)


def spread(scale, shape, granularity):
    """The scale of each element, on the CPU."""
    scale = scale.cpu()
    if granularity == "tensor":
        return scale.reshape(())
    if granularity in ("1x128", "128x128"):
        scale = scale.repeat_interleave(128, -1)[..., : shape[-1]]
    if granularity == "128x128":
        scale = scale.repeat_interleave(128, -2)[..., : shape[-2], :]
    return scale


def check(x, dtype, granularity, scale):
    values, same, amax = tcgemm.quantize(x, dtype, granularity, scale=scale, amax=True)
    limit = LIMIT[dtype]
    quotient = x.cpu().float() / spread(scale, x.shape, granularity)
    expected = quotient.clamp(-limit, limit)
    expected = (expected.round().nan_to_num(0) if dtype is S8 else expected).to(dtype)
    nan = quotient.isnan() & torch.tensor(dtype is not S8)
    assert values.dtype is dtype and values.shape == x.shape and values.is_contiguous()
    assert values.cpu().float()[nan].isnan().all()
    assert torch.equal(bits(values)[~nan], bits(expected)[~nan])
    assert torch.equal(same.nan_to_num(7), scale.nan_to_num(7))
    # amax is what a call without a scale divides by, if all is finite.
    finite = torch.where(x.isfinite(), x, 0)
    expected_scale = tcgemm.quantize(finite, dtype, granularity)[1].cpu()
    assert amax.shape == expected_scale.shape and amax.dtype is torch.float32
    divided = (amax.cpu() / limit).clamp(min=2.0**-126)
    assert torch.equal(torch.where(amax.cpu() == 0, 1.0, divided), expected_scale)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("dtype", LIMIT, ids=str)
def test_bits(dtype, granularity, device):
    for source in FLOATS:
        for shape in ((1, 1), (3, 130), (129, 257), (2, 3, 5, 128), (1, 1000)):
            x = make("contiguous", *shape, dtype=source, device=device)
            x = x * torch.logspace(-3, 3, shape[-1], device=device).to(source)
            scale = tcgemm.quantize(x, dtype, granularity)[1]
            check(x, dtype, granularity, scale)  # values in range
            check(x, dtype, granularity, scale * 0.37)  # some of them saturate
            check(x, dtype, granularity, scale * 1e5)  # many round to zero
    x = make("transposed", 66, 140, dtype=source, device=device)
    check(x, dtype, granularity, tcgemm.quantize(x, dtype, granularity)[1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LIMIT, ids=str)
def test_scales_and_numbers_of_every_kind(dtype, device):
    inf, nan = float("inf"), float("nan")
    row = [0.0, -0.0, 1.0, -3.0, 3e38, -3e38, 1e-45, 65504.0, inf, -inf, nan, 2.0**-126]
    kinds = (1.0, -2.0, 1e-20, 1e-44, 2.0**-80, 2.0**100, 3e38, inf, nan, 0.0)
    for numbers in (row, row[:8]):  # vectors with and without Inf and NaN
        x = torch.tensor(numbers, device=device).repeat(len(kinds), 1)
        scale = torch.tensor(kinds, device=device).unsqueeze(1)
        check(x, dtype, "row", scale)
        for factor in scale:
            check(x[0], dtype, "tensor", factor)


@pytest.mark.parametrize("device", DEVICES)
def test_empty_tensors_and_scales_of_any_strides(device):
    for granularity in GRANULARITIES:
        x = torch.empty(0, 300, device=device)
        scale = tcgemm.quantize(x, S8, granularity)[1]
        values, _, amax = tcgemm.quantize(x, S8, granularity, scale=scale, amax=True)
        assert values.shape == x.shape and (amax == 0).all() and amax.shape == scale.shape
    x = torch.randn(4, 300, device=device)
    scale = torch.rand(3, 4, device=device).t() + 0.01
    check(x, E4M3, "1x128", scale)
    check(x, E4M3, "tensor", torch.full((1, 1, 1), 0.01, device=device))


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"scale": torch.ones(4)}, RuntimeError, r"scale has shape \(4,\), but granularity \"tens"),
        (
            {"scale": torch.ones(4), "granularity": "row"},
            RuntimeError,
            r"scale has shape \(4,\), but x of shape \(4, 6\) .* has scales of shape \(4, 1\)",
        ),
        ({"scale": torch.ones((), dtype=torch.float64)}, RuntimeError, r"scale is torch.float64,"),
        ({"scale": torch.ones((), device="meta")}, RuntimeError, r"scale is on meta, but x is on"),
        ({"scale": 0.5}, TypeError, r"scale must be a torch.Tensor, but is float"),
        ({"amax": True}, RuntimeError, r"amax is asked for without a scale"),
    ],
)
def test_what_is_refused(options, error, sentence):
    with pytest.raises(error, match=sentence):
        tcgemm.quantize(torch.randn(4, 6), S8, **options)


class Tagged(torch.Tensor):
    """A subclass with torch's default __torch_function__."""


def test_subclasses():
    x = torch.randn(4, 6).as_subclass(Tagged)
    results = tcgemm.quantize(x, S8, scale=torch.ones(()), amax=True)
    assert [type(result) for result in results] == [Tagged] * 3
    with pytest.raises(RuntimeError, match=r"amax is asked for without a scale"):
        tcgemm.quantize(x, S8, amax=True)


def test_results_carry_no_derivatives():
    x, scale = (torch.rand(*shape, requires_grad=True) for shape in ((4, 6), (4, 1)))
    assert not any(
        out.requires_grad for out in tcgemm.quantize(x, S8, "row", scale=scale, amax=True)
    )


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_vmap_is_one_example_after_another(granularity):
    x = torch.randn(3, 130, 140)
    scale = torch.stack([tcgemm.quantize(row, E4M3, granularity)[1] for row in x]) / 2

    def quantized(x, scale):
        return tcgemm.quantize(x, E4M3, granularity, scale=scale, amax=True)

    for dims, arguments in (
        ((0, 0), (x, scale)),
        ((0, None), (x, scale[0])),
        ((None, 0), (x[0], scale)),
    ):
        values, _, amax = vmap(quantized, dims)(*arguments)
        for index in range(3):
            row = [a[index] if dim == 0 else a for a, dim in zip(arguments, dims, strict=True)]
            expected = quantized(*row)
            assert torch.equal(bits(values[index]), bits(expected[0]))
            assert torch.equal(amax[index], expected[2])


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_as_an_operator(granularity):
    x = torch.randn(3, 130)
    scale = tcgemm.quantize(x, E5M2, granularity)[1]
    names = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    arguments = (x, scale, E5M2, granularity)
    opcheck(torch.ops.tcgemm.quantize.scaled, arguments, test_utils=names)


def test_compiled():
    torch._dynamo.reset()

    def function(x, scale):
        values, scale, amax = tcgemm.quantize(x, E4M3, "row", scale=scale, amax=True)
        return tcgemm.dequantize(values, scale) + amax

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for rows in (3, 5):
        x = torch.randn(rows, 300, requires_grad=True)
        scale = x.detach().abs().amax(1, keepdim=True) / 448
        assert torch.equal(compiled(x, scale), function(x, scale))
