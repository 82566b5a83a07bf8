"""quantized_linear and tcgemm.nn.QuantLinear: values, gradients, state, and the exchange."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jvp, vmap
from torch.library import opcheck
from torch.nn.utils import prune

import tcgemm
from tcgemm.nn import QuantLinear
from tcgemm.ops.activations import activate

from support.calls import Recorder
from support.cases import BF16, F16, F32, FP8, FP8_DEVICES, assert_undone, copies, reloaded

E4M3, E5M2, S8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
KINDS = (
    *((dtype, granularity) for dtype in (E4M3, E5M2, S8) for granularity in ("row", "tensor")),
    *((dtype, "128x128") for dtype in (E4M3, E5M2)),
)
OF_X = {"row": "row", "tensor": "tensor", "128x128": "1x128"}
kinds = pytest.mark.parametrize(("dtype", "granularity"), KINDS, ids=str)


def rounded(x, dtype, granularity):
    """x after the rounding to 8 bits, in float64."""
    return tcgemm.dequantize(*tcgemm.quantize(x.detach(), dtype, granularity), torch.float64)


def layer_of(x, weight, bias=None, residual=None, *, dtype, granularity, activation=None):
    """The product of rounded operands with the gradients of the others, in torch's operators."""
    bias = bias if bias is None else bias.double()
    z = F.linear(x.double(), weight.double(), bias)
    x8, weight8 = rounded(x, dtype, OF_X[granularity]), rounded(weight, dtype, granularity)
    z = z + (F.linear(x8, weight8, bias) - z).detach()
    out = activate(z, activation)
    return out if residual is None else out + residual.double()


def close(result, expected, eps=None):
    eps = eps or {F16: 2.0**-9, BF16: 2.0**-6, F32: 2.0**-16}[result.dtype]
    size = expected.abs().max().item()
    torch.testing.assert_close(result.double(), expected.double(), rtol=eps, atol=eps * size)


@pytest.mark.parametrize("device", FP8_DEVICES)
@kinds
def test_values(dtype, granularity, device):
    options = {"dtype": dtype, "granularity": granularity}
    coarse = device == "cuda" and dtype in FP8  # tensor cores keep 14 bits of their sums
    weight, bias = torch.randn(40, 300, device=device), torch.randn(40, device=device)
    for shape in ((300,), (7, 300), (2, 3, 300), (0, 300)):
        for kind in (F32, BF16, F16):
            x = torch.randn(shape, device=device).to(kind)
            out = tcgemm.quantized_linear(x, weight, bias, activation="gelu", **options)
            assert out.dtype is kind and out.shape == (*shape[:-1], 40)
            if out.numel():
                expected = layer_of(x, weight, bias, activation="gelu", **options)
                close(out, expected, 2.0**-10 if coarse and kind is F32 else None)
    residual = torch.randn(3, 40, device=device)
    x = torch.randn(2, 3, 300, device=device).to(BF16)
    out = tcgemm.quantized_linear(x, weight, residual=residual, out_dtype=F32, **options)
    close(out, layer_of(x, weight, residual=residual, **options), 2.0**-10 if coarse else None)


@kinds
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_gradients_go_straight_through(dtype, granularity, activation):
    options = {"dtype": dtype, "granularity": granularity, "activation": activation}
    for kind, master in ((BF16, F32), (F32, F32), (F16, F16), (F32, BF16)):
        x = torch.randn(2, 5, 130).to(kind).requires_grad_()
        weight = torch.randn(24, 130).to(master).requires_grad_()
        bias, residual = (torch.randn(s, requires_grad=True) for s in ((24,), (2, 5, 24)))
        leaves = (x, weight, bias, residual)
        g = torch.randn(2, 5, 24)

        def gradients(function, x, weight, bias, residual, g=g, leaves=leaves):
            out = function(x, weight, bias, residual=residual, **options)
            return torch.autograd.grad(out, leaves, g.to(out.dtype))

        grads = gradients(tcgemm.quantized_linear, *leaves)
        for leaf, gradient, value in zip(leaves, grads, gradients(layer_of, *leaves), strict=True):
            assert gradient.dtype is leaf.dtype and gradient.is_contiguous()
            close(gradient, value, 2.0**-5 if BF16 in (kind, master) or kind is F32 else 2.0**-8)


def test_gradients_are_products_of_16_bits():
    names = ("quantized_linear", "matmul", "linear", "mm", "bmm", "addmm")

    def dtypes(func, args, kwargs):
        return [(func._opname, *(x.dtype for x in args[:2]))] if func._opname in names else []

    x = torch.randn(4, 64, dtype=BF16, requires_grad=True)
    weight = torch.randn(8, 64, requires_grad=True)
    with Recorder(dtypes) as recorder:
        tcgemm.quantized_linear(x, weight).sum().backward()
    assert recorder.rows == [("quantized_linear", BF16, F32), *[("matmul", BF16, BF16)] * 2]


@kinds
def test_a_quantised_weight_lets_the_gradient_through(dtype, granularity):
    options = {"dtype": dtype, "granularity": granularity}
    x = torch.randn(5, 140, requires_grad=True)
    weight = torch.randn(130, 140)
    values, scale = tcgemm.quantize(weight, dtype, granularity)
    out = tcgemm.quantized_linear(x, values, weight_scale=scale, **options)
    assert torch.equal(out, tcgemm.quantized_linear(x, weight, **options))
    g = torch.randn(5, 130)
    (gradient,) = torch.autograd.grad(out, x, g)
    close(gradient, g.double() @ rounded(weight, dtype, granularity), 2.0**-5)


def test_transforms():
    x, weight, bias = torch.randn(6, 5, 64), torch.randn(8, 64), torch.randn(8)
    for granularity in ("row", "tensor", "128x128"):

        def layer(x, weight, bias, granularity=granularity):
            return tcgemm.quantized_linear(
                x, weight, bias, granularity=granularity, activation="silu"
            )

        rows = torch.stack([layer(row, weight, bias) for row in x])
        assert torch.equal(vmap(layer, (0, None, None))(x, weight, bias), rows)
        assert torch.equal(vmap(layer, (1, None, None))(x.transpose(0, 1), weight, bias), rows)
        weights = torch.stack([weight, -weight])
        both = torch.stack([layer(x[0], w, bias) for w in weights])
        assert torch.equal(vmap(layer, (None, 0, None))(x[0], weights, bias), both)

        def loss(weight, x, layer=layer):
            return layer(x, weight, bias).square().sum()

        leaf = weight.clone().requires_grad_()
        expected = [torch.autograd.grad(loss(leaf, row), leaf)[0] for row in x]
        torch.testing.assert_close(vmap(grad(loss), (None, 0))(weight, x), torch.stack(expected))
        _, tangent = jvp(lambda w: loss(w, x), (weight,), (weight,))
        through = (torch.stack(expected).sum(0) * weight).sum()
        torch.testing.assert_close(tangent, through, rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("granularity", ["row", "128x128"])
def test_compiled_as_eager(granularity, dynamic):
    torch._dynamo.reset()

    def layer(x, weight, bias):
        options = {"granularity": granularity, "activation": "gelu"}
        return tcgemm.quantized_linear(x, weight, bias, **options)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (3, 5):
        leaves = [torch.randn(s, requires_grad=True) for s in ((rows, 64), (8, 64), (8,))]
        out, expected = compiled(*leaves), layer(*leaves)
        assert torch.equal(out, expected)
        torch.testing.assert_close(
            torch.autograd.grad(out.sum(), leaves), torch.autograd.grad(expected.sum(), leaves)
        )


def test_under_autocast():
    x, weight = torch.randn(4, 64, requires_grad=True), torch.randn(8, 64, requires_grad=True)
    with torch.autocast("cpu", dtype=BF16):
        out = tcgemm.quantized_linear(x, weight, torch.zeros(8))
    assert out.dtype is BF16
    assert torch.equal(out, tcgemm.quantized_linear(x.bfloat16(), weight, torch.zeros(8)))
    out.float().sum().backward()
    assert x.grad.dtype is weight.grad.dtype is F32


def test_as_an_operator():
    op = torch.ops.tcgemm.quantized_linear.default
    for dtype, granularity in KINDS:
        options = {"dtype": dtype, "granularity": granularity}
        x, weight, bias = (
            torch.randn(s, requires_grad=True) for s in ((2, 3, 140), (9, 140), (9,))
        )
        opcheck(op, (x, weight, None, bias), {**options, "activation": "gelu"})
        opcheck(op, (x[0, 0].bfloat16(), weight), options)
        values, scale = tcgemm.quantize(weight, dtype, granularity)
        names = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        opcheck(op, (x, values, scale, bias), options, test_utils=names)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dtype": torch.uint8}, "quantized_linear: dtype is torch.uint8, but values are quant"),
        ({"granularity": "1x128"}, "quantized_linear: granularity is '1x128', but weights have"),
        (
            {"granularity": "128x128", "dtype": S8},
            "dtype is torch.int8, .*with granularity 128x128 only float8",
        ),
        ({"weight_scale": torch.ones(8, 1)}, "weight is torch.float32 and has a weight_scale"),
        ({"weight": torch.ones(8, 64).double()}, "weight is torch.float64, but it must be"),
        ({"weight": torch.ones(8, 64).to(S8)}, "weight is torch.int8, but it must be"),
        ({"x": torch.ones(4, 64).double()}, "x is torch.float64"),
        ({"weight": torch.ones(8, 63)}, "K"),
    ],
)
def test_what_is_refused(options, sentence):
    call = {"x": torch.ones(4, 64), "weight": torch.ones(8, 64), **options}
    with pytest.raises(RuntimeError, match=sentence):
        tcgemm.quantized_linear(**call)


def test_what_is_no_tensor_or_needs_a_gradient_that_is_not_there():
    x, values = torch.randn(4, 64), torch.randn(8, 64).to(E4M3)
    with pytest.raises(TypeError, match=r"tcgemm.quantized_linear: bias must be a torch.Tensor"):
        tcgemm.quantized_linear(x, torch.randn(8, 64), 1.0)
    with pytest.raises(TypeError, match=r"tcgemm.quantized_linear: weight must be a torch.Tensor"):
        tcgemm.quantized_linear(x, None)
    scale = torch.ones(8, 1, requires_grad=True)
    with pytest.raises(RuntimeError, match="weight_scale needs a gradient, but scales are const"):
        tcgemm.quantized_linear(x, values, weight_scale=scale)
    with pytest.raises(
        RuntimeError, match=r"weight needs a gradient, but operands of torch.float8"
    ):
        weight = values.clone().requires_grad_()
        tcgemm.quantized_linear(x, weight, weight_scale=scale.detach())


# The module.


@pytest.mark.parametrize("device", FP8_DEVICES)
@kinds
def test_from_a_linear_and_back(dtype, granularity, device):
    linear = nn.Linear(140, 30, device=device)
    layer = QuantLinear.from_linear(linear, dtype, granularity)
    x = torch.randn(2, 3, 140, device=device)
    options = {"dtype": dtype, "granularity": granularity}
    assert torch.equal(layer(x), tcgemm.quantized_linear(x, linear.weight, linear.bias, **options))
    assert layer(x[0, 0]).shape == (30,) and layer(x.bfloat16()).dtype is BF16
    error = (layer(x) - linear(x)).norm() / linear(x).norm()
    assert error < {E4M3: 0.05, E5M2: 0.1, S8: 0.02}[dtype]
    assert not any(parameter.requires_grad for parameter in layer.parameters())
    assert layer.weight.values.dtype is dtype and layer.weight.values.element_size() == 1
    back = layer.to_linear()
    assert type(back) is tcgemm.nn.Linear and back.weight.dtype is F32
    assert torch.equal(back.bias, linear.bias)
    close(back.weight.detach(), rounded(linear.weight, dtype, granularity))
    second = QuantLinear.from_linear(back, dtype, granularity)
    assert torch.equal(second._buffers["weight"], layer._buffers["weight"])


def test_what_is_taken_along():
    linear = tcgemm.nn.Linear(8, 4, bias=False, dtype=BF16, activation="gelu").eval()
    layer = QuantLinear.from_linear(linear)
    assert layer.activation == "gelu" and layer.bias is None and not layer.training
    assert repr(layer) == (
        "QuantLinear(in_features=8, out_features=4, bias=False, dtype=torch.float8_e4m3fn, "
        "granularity=row, activation=gelu)"
    )
    back = layer.to_linear(BF16)
    assert back.activation == "gelu" and back.bias is None and not back.training
    assert back.weight.dtype is BF16
    assert layer.to_linear().weight.dtype is torch.get_default_dtype()


@kinds
def test_state_dicts(dtype, granularity):
    linear = nn.Linear(140, 30)
    layer = QuantLinear.from_linear(linear, dtype, granularity)
    x, expected = torch.randn(3, 140), None
    expected = layer(x)
    options = {"dtype": dtype, "granularity": granularity}
    loaded = reloaded(layer.state_dict())
    for state in (loaded, linear.state_dict(), {k: v.detach() for k, v in loaded.items()}):
        for assign in (False, True):
            fresh = nn.Sequential(QuantLinear(140, 30, **options))
            fresh.load_state_dict({f"0.{k}": v for k, v in state.items()}, assign=assign)
            assert torch.equal(fresh(x), expected)
    assert list(linear.state_dict()) == ["weight", "bias"]  # not written to
    meta = QuantLinear(140, 30, device="meta", **options)
    meta.load_state_dict(loaded, assign=True)
    assert torch.equal(meta(x), expected)
    other = QuantLinear(140, 30, dtype=S8 if dtype is not S8 else E4M3)
    with pytest.raises(RuntimeError, match=f"weight is {dtype}, but this QuantLinear has"):
        other.load_state_dict(loaded)
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        QuantLinear(141, 30, **options).load_state_dict(loaded)


def test_safetensors():
    safetensors = pytest.importorskip("safetensors.torch")
    layer = QuantLinear.from_linear(nn.Linear(140, 30), E4M3, "tensor")
    state = safetensors.load(safetensors.save(layer.state_dict()))
    fresh = QuantLinear(140, 30, granularity="tensor")
    fresh.load_state_dict(state)
    x = torch.randn(3, 140)
    assert torch.equal(fresh(x), layer(x))


@kinds
def test_copies_and_conversions(dtype, granularity):
    layer = QuantLinear.from_linear(nn.Linear(140, 30), dtype, granularity)
    x = torch.randn(3, 140)
    for other in (*copies(layer), layer.to("cpu")):
        assert torch.equal(other(x), layer(x))
    expected = layer(x.half().float())
    for convert in (nn.Module.half, nn.Module.bfloat16, lambda m: m.to(F16)):
        other = convert(copy.deepcopy(layer))
        assert other.weight.values.dtype is dtype and other.weight_scale.dtype is F32
        assert other.weight.dtype is other.bias.dtype and other.bias.dtype in (F16, BF16)
        close(other(x.half()), expected, 2.0**-6)
    assert layer.to("meta")(x.to("meta")).shape == (3, 30)


def test_compiled_module_trains_what_is_before_it():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(64, 64), QuantLinear.from_linear(nn.Linear(64, 8)))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 64)
    gradients = []
    for forward in (model, compiled):
        model.zero_grad()
        forward(x).square().sum().backward()
        gradients.append(model[0].weight.grad.clone())
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().sum() > 0
    state = dict(model.named_buffers()) | dict(model.named_parameters())
    assert torch.equal(functional_call(model, state, (x,)), model(x))


def test_exported_and_in_inference_mode():
    layer = QuantLinear.from_linear(nn.Linear(64, 8))
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(layer, (torch.randn(3, 64),), dynamic_shapes=({0: rows},))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets == ["aten.view.dtype", "tcgemm.quantized_linear.default"]
    assert "dtype" not in list(program.graph.nodes)[-2].kwargs
    x = torch.randn(5, 64)
    assert torch.equal(program.module()(x), layer(x))
    with torch.inference_mode():
        assert torch.equal(layer(x), program.module()(x)) and layer(x).is_inference()
    meta = QuantLinear.from_linear(nn.Linear(64, 8, device="meta"), S8)
    assert meta.weight.is_meta and meta.weight.values.dtype is S8


def test_a_new_layer_is_zero_and_checks_its_options():
    layer = QuantLinear(8, 4, dtype=S8, activation="relu", bias_dtype=BF16)
    assert torch.equal(layer(torch.randn(2, 8)), torch.zeros(2, 4))
    assert layer.bias.dtype is BF16 and QuantLinear(8, 4, False).bias is None
    with pytest.raises(RuntimeError, match=r"tcgemm.nn.QuantLinear: granularity is 'column'"):
        QuantLinear(8, 4, granularity="column")
    with pytest.raises(RuntimeError, match=r"tcgemm.nn.QuantLinear: dtype is torch.int8"):
        QuantLinear.from_linear(nn.Linear(8, 4), S8, "128x128")


# The exchange.


def test_swap_there_and_back():
    model = nn.Sequential(
        nn.Linear(64, 32), nn.ReLU(), tcgemm.nn.Linear(32, 32, activation="gelu"), nn.Linear(32, 8)
    )
    model.append(nn.Linear(8, 8).double()).append(model[0])
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append("hook"))
    model[2].eval()
    before = [(type(module), vars(module).copy()) for module in model]
    parameters = dict(model.named_parameters())
    x = torch.randn(5, 64)
    expected = model[:4](x)

    report = tcgemm.swap_linear(
        model, lambda module, name: name != "3", to=QuantLinear, dtype=S8, granularity="tensor"
    )
    assert report.swapped == ["0", "2"]
    assert report.skipped == {
        "3": "filter_fn is false for it",
        "4": "has weights of torch.float64; only weights of torch.float16, "
        "torch.bfloat16, torch.float32 are quantised",
    }
    assert type(model[0]) is type(model[5]) is type(model[2]) is QuantLinear
    assert model[0].weight.values.dtype is S8 and model[0].weight_scale.shape == ()
    assert not model[2].training and model[2].activation == "gelu"
    assert "0.weight" not in dict(model.named_parameters())
    close(model[:4](x), expected, 0.05)
    assert calls == ["hook", "hook"]
    second = tcgemm.swap_linear(model, to=QuantLinear)
    assert second.skipped["0"] == "is a tcgemm.nn.QuantLinear already" and second.swapped == ["3"]

    assert_undone((second, report), model, before, parameters)
    assert torch.equal(model[:4](x), expected)


def test_swapping_the_model_itself_and_what_cannot_be():
    layer = nn.Linear(8, 4)
    report = tcgemm.swap_linear(layer, to=QuantLinear)
    assert report.swapped == [""] and type(layer) is QuantLinear
    layer.half()
    report.undo()
    assert type(layer) is nn.Linear and layer.weight.dtype is F32
    prune.l1_unstructured(layer, "weight", 0.5)
    report = tcgemm.swap_linear(layer, to=QuantLinear)
    assert (
        report.skipped[""]
        == "has a weight that is computed from other tensors, as by torch.nn.utils.prune"
    )
    for options in ({"dtype": S8}, {"to": nn.Conv2d}):
        with pytest.raises(RuntimeError, match=r"tcgemm.swap_linear: to is .* but there are"):
            tcgemm.swap_linear(layer, **options)


@pytest.mark.parametrize("k", [131_073, 133_144, 133_145, 262_145])
def test_sums_of_int8_do_not_overflow(k, device):
    """127 * 127 * 133,145 is above 2^31."""
    x, weight = torch.ones(2, k, device=device), torch.ones(3, k, device=device)
    weight[1] = -1
    bias = torch.tensor([1.0, -1.0, 0.0], device=device)
    expected = torch.tensor([k + 1.0, -k - 1.0, k], device=device).expand(2, 3)
    out = tcgemm.quantized_linear(x, weight, bias, dtype=S8)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=0)
    layer = QuantLinear(k, 3, dtype=S8, activation="relu", device=device)
    layer.load_state_dict({"weight": weight, "bias": bias})
    torch.testing.assert_close(layer(x), expected.relu(), rtol=1e-5, atol=0)
    torch.testing.assert_close(layer(x[0]), expected[0].relu(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("device", FP8_DEVICES)
@pytest.mark.parametrize("dtype", [E4M3, E5M2, S8], ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_number_comes_from_nan_and_inf(bad, dtype, device):
    x, weight = torch.ones(3, 64, device=device), torch.ones(5, 64, device=device)
    x[1, 7] = weight[2, 9] = bad
    out = tcgemm.quantized_linear(x, weight, dtype=dtype)
    assert out[1].isnan().all() and out[:, 2].isnan().all()
    assert out[::2, [0, 1, 3, 4]].isfinite().all()
