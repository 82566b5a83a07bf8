"""quantize against its definition in torch's operators, bit by bit, and dequantize."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, jvp, vmap
from torch.library import opcheck

import tcgemm

from support.cases import DEVICES, FLOATS, make

E4M3, E5M2, S8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
DTYPES = (E4M3, E5M2, S8)
LIMIT = {E4M3: 448.0, E5M2: 57344.0, S8: 127.0}
GRANULARITIES = ("tensor", "row", "1x128", "128x128")
GROUP = {"row": (1, None), "1x128": (1, 128), "128x128": (128, 128)}


def definition(x, dtype, granularity):
    """(values, scale), of matrices that are padded to whole blocks."""
    x, limit = x.float().cpu(), LIMIT[dtype]
    magnitude = x.abs()
    if granularity == "tensor":
        amax = magnitude.max()
    else:
        m, k = x.shape[-2:] if x.dim() > 1 else (1, x.shape[-1])
        rows, cols = (step or k for step in GROUP[granularity])
        padded = F.pad(magnitude.reshape(-1, m, k), (0, -k % cols, 0, -m % rows))
        amax = padded.unflatten(2, (-1, cols)).unflatten(1, (-1, rows)).amax((2, 4))
    scale = torch.where(amax == 0, 1.0, (amax / limit).clamp(min=2.0**-126))
    scale = scale.where(amax.isfinite(), float("nan"))
    spread = scale
    if granularity != "tensor":
        spread = scale.repeat_interleave(rows, 1)[:, :m].repeat_interleave(cols, 2)[:, :, :k]
        spread = spread.reshape(x.shape)
        scale = scale.reshape(*x.shape[:-2], *scale.shape[1 if x.dim() > 1 else 2 :])
    values = (x / spread).clamp(-limit, limit)
    return (values.round().nan_to_num(0) if dtype is S8 else values).to(dtype), scale


def bits(tensor):
    return tensor.cpu().view(torch.uint8) if tensor.element_size() == 1 else tensor.cpu()


def check(x, dtype, granularity):
    values, scale = tcgemm.quantize(x, dtype, granularity)
    expected_values, expected_scale = definition(x, dtype, granularity)
    assert values.dtype is dtype and scale.dtype is torch.float32
    assert values.is_contiguous() and scale.is_contiguous()
    assert values.shape == x.shape and scale.shape == expected_scale.shape
    torch.testing.assert_close(scale.cpu(), expected_scale, rtol=0, atol=0, equal_nan=True)
    expected_values = expected_values.to(dtype)
    nan = expected_values.float().isnan()
    assert values.cpu().float()[nan].isnan().all()
    assert torch.equal(bits(values)[~nan], bits(expected_values)[~nan])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits(dtype, granularity, device):
    for source in FLOATS:
        for shape in ((1, 1), (3, 130), (129, 257), (2, 3, 5, 128), (200, 7), (1, 1000)):
            x = make("contiguous", *shape, dtype=source, device=device)
            check(
                x * torch.logspace(-3, 3, shape[-1], device=device).to(source), dtype, granularity
            )
        for strides in ("transposed", "step_both", "odd_pitch", "expanded_rows", "offset"):
            check(make(strides, 66, 140, dtype=source, device=device), dtype, granularity)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("granularity", GRANULARITIES[:3])
def test_one_dimension(granularity, device):
    for size in (1, 128, 300):
        check(torch.randn(size, device=device), E4M3, granularity)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_that_are_none_and_groups_of_zeros(dtype, device):
    inf, nan = float("inf"), float("nan")
    rows = [[0.0] * 4, [-0.0, 0.0, 0.0, 0.0], [inf, -inf, 1.0, -2.0], [nan, 3.0, -1.0, 0.5]]
    rows += [[inf, nan, -inf, 0.0], [nan] * 4, [1e-45, -1e-45, 0.0, 0.0], [3e38, -3e38, 1.0, 0.0]]
    x = torch.tensor(rows, device=device)
    check(x, dtype, "row")
    for row in x:
        check(row, dtype, "tensor")
    values, scale = tcgemm.quantize(x, dtype, "row")
    assert scale[0].item() == scale[1].item() == 1 and scale[2:6].isnan().all()
    products = {"scale_a": scale, "out_dtype": torch.float32}
    ones = torch.ones(4, 8, device=device).to(dtype)
    assert tcgemm.mm(values, ones, **products)[2:6].isnan().all()
    assert scale[6].item() == 2.0**-126


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_empty(granularity, device):
    for shape in ((0, 5), (5, 0), (0, 0), (2, 0, 300)):
        values, scale = tcgemm.quantize(torch.empty(shape, device=device), S8, granularity)
        assert values.shape == shape
        assert (scale == 1).all()


def test_ties_go_to_even():
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 127.0])
    assert tcgemm.quantize(x, S8)[0].tolist() == [0, 2, 2, 0, -2, 127]
    x = torch.tensor([17.0, 19.0, 448.0])  # between 16, 18 and 20
    assert tcgemm.quantize(x, E4M3)[0].tolist() == [16, 20, 448]


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_there_and_back(dtype, granularity):
    x = torch.randn(3, 140, 300)
    values, scale = tcgemm.quantize(x, dtype, granularity)
    back = tcgemm.dequantize(values, scale)
    assert back.shape == x.shape and back.dtype is torch.float32
    step = {E4M3: 2.0**-10, E5M2: 2.0**-17, S8: 0.5}[dtype] * scale.max()
    unit = {E4M3: 2.0**-4, E5M2: 2.0**-3, S8: 0.0}[dtype]
    assert ((back - x).abs() <= 1.001 * (unit * x.abs() + step)).all()
    assert tcgemm.dequantize(values, scale, torch.bfloat16).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: tcgemm.quantize(x, torch.uint8), "torch.uint8"),
        (lambda x: tcgemm.quantize(x.double(), S8), "torch.float64"),
        (lambda x: tcgemm.quantize(x, S8, "column"), 'granularity is "column"'),
        (lambda x: tcgemm.quantize(x[0], S8, "128x128"), "x .*128x128"),
        (lambda x: tcgemm.quantize(x[0, 0], S8), "tcgemm.quantize: x"),
        (lambda x: tcgemm.dequantize(x.to(S8), x[:3]), r"scale has shape \(3, 6\), but values of"),
    ],
)
def test_what_is_refused(call, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        call(torch.randn(4, 6))


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match=r"tcgemm.quantize: x must be a torch.Tensor, but is list"):
        tcgemm.quantize([1.0], S8)


class Tagged(torch.Tensor):
    """A subclass with torch's default __torch_function__."""


def test_subclasses():
    values, scale = tcgemm.quantize(torch.randn(4, 6).as_subclass(Tagged), S8)
    assert type(values) is type(scale) is Tagged


def test_results_carry_no_derivatives():
    x = torch.randn(4, 6, requires_grad=True)
    for call in (tcgemm.quantize, torch.ops.tcgemm.quantize):
        for dtype in DTYPES:
            assert not any(out.requires_grad for out in call(x, dtype))

    def product(x):
        values, scale = tcgemm.quantize(x, E4M3)
        return (values.float() * scale * x).sum()

    expected = tcgemm.dequantize(*tcgemm.quantize(x.detach(), E4M3))
    torch.testing.assert_close(torch.autograd.grad(product(x), x)[0], expected)
    torch.testing.assert_close(grad(product)(x.detach()), expected)
    _, tangent = jvp(product, (x.detach(),), (torch.ones(4, 6),))
    torch.testing.assert_close(tangent, expected.sum())


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_vmap_is_one_example_after_another(granularity):
    x = torch.randn(3, 130, 5, 140)
    for dim in (0, 2):
        together = vmap(lambda x: tcgemm.quantize(x, E4M3, granularity), dim)(x)
        for index, example in enumerate(x.unbind(dim)):
            values, scale = tcgemm.quantize(example, E4M3, granularity)
            assert torch.equal(bits(together[0][index]), bits(values))
            assert torch.equal(together[1][index], scale)
    if granularity != "128x128":
        rows = vmap(lambda x: tcgemm.quantize(x, S8, granularity))(x[0, :, 0])
        assert torch.equal(rows[0][7], tcgemm.quantize(x[0, 7, 0], S8, granularity)[0])


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_as_an_operator(granularity):
    names = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    for dtype in DTYPES:
        for x in (torch.randn(3, 130), torch.randn(2, 3, 140)[..., ::2]):
            arguments = (x, dtype, granularity)
            opcheck(torch.ops.tcgemm.quantize.default, arguments, test_utils=names)
    opcheck(torch.ops.tcgemm.quantize.default, (torch.randn(3, 130), S8, granularity))
    meta = tcgemm.quantize(torch.empty(2, 130, 300, device="meta"), E5M2, granularity)
    real = tcgemm.quantize(torch.randn(2, 130, 300), E5M2, granularity)
    assert [out.shape for out in meta] == [out.shape for out in real]
    assert [out.dtype for out in meta] == [out.dtype for out in real]


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    torch._dynamo.reset()

    def function(x):
        values, scale = tcgemm.quantize(x, E4M3, "1x128")
        return tcgemm.dequantize(values, scale) + 1

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (3, 5):
        x = torch.randn(rows, 300, requires_grad=True)
        assert torch.equal(compiled(x), function(x))
