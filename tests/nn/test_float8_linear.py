"""tcgemm.nn.Float8Linear: its products and gradients, and where a model may use it."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import tcgemm
from tcgemm.nn import Float8Linear
from tcgemm.operands.quant.float8 import scale_of
from tcgemm.ops.activations import activate

from support.cases import ACTIVATIONS, DEVICES, FLOATS
from support.inductor import inductor
from support.samples import nightly

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
BOTH = pytest.mark.parametrize("scaling", ["current", "delayed"])


def rounded(x, dtype):
    """The tensor that the 8-bit values stand for, in float64."""
    return tcgemm.dequantize(*tcgemm.quantize(x, dtype)).double()


def definition(x, weight, bias, g, activation):
    """(the result, the gradients of x, weight and bias), in float64, of the rounded tensors."""
    x8, w8 = rounded(x, E4M3), rounded(weight, E4M3)
    z = (x8 @ w8.t() + (0 if bias is None else bias.double())).requires_grad_()
    out = activate(z, activation)
    (gz,) = torch.autograd.grad(out, z, g.double())
    g8 = rounded(gz.to(g.dtype), E5M2)
    rows = g8.flatten(0, -2)
    return out.detach(), g8 @ w8, rows.t() @ x8.flatten(0, -2), gz.flatten(0, -2).sum(0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", (None, *ACTIVATIONS))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_result_and_the_gradients(dtype, activation, device):
    for shape, bias in (((40, 64), True), ((2, 3, 16, 64), False), ((5, 64), True)):
        options = {"dtype": dtype, "device": device, "activation": activation}
        layer = Float8Linear(64, 48, bias, **options)
        x = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
        g = torch.randn(*shape[:-1], 48, dtype=dtype, device=device)
        out = layer(x)
        leaves = [x, layer.weight, *([layer.bias] if bias else [])]
        results = (out, *torch.autograd.grad(out, leaves, g))
        plain = [
            tensor if tensor is None else tensor.detach()
            for tensor in (x, layer.weight, layer.bias)
        ]
        expected = definition(*plain, g, activation)
        unit = torch.finfo(dtype).eps
        # Tensor cores of Hopper cut each product below 13 bits of the largest one of 32. A model of
        # that finds up to 3.7e-4 of the largest element for these shapes.
        sums = 1e-5 if device == "cpu" else 2.0**-10
        for result, value in zip(results, expected, strict=False):
            assert result.dtype is dtype
            difference = (result - value).abs()
            if activation in (None, "relu"):
                assert (difference <= (4 * unit + sums) * value.abs().max()).all()
            else:  # a gz that lies near the middle of two values of 8 bits may be the other one
                assert difference.norm() <= (4 * unit + 0.05) * value.norm()
        assert tcgemm.nn.QuantLinear.from_linear(layer, granularity="tensor")(x).dtype is dtype


def test_without_a_gradient_the_result_is_the_same():
    layer, x = Float8Linear(64, 48), torch.randn(5, 64)
    expected = layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x), expected)
    with torch.no_grad():
        assert torch.equal(layer.eval()(x), expected)


def test_only_what_needs_a_gradient_has_one():
    layer, x = Float8Linear(64, 48), torch.randn(5, 64, requires_grad=True)
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.weight.grad is None and x.grad is not None
    assert torch.equal(layer.bias.grad, torch.full((48,), 5.0))
    layer, x = Float8Linear(64, 48, bias=False), torch.randn(64)
    layer(x).sum().backward()
    assert layer.weight.grad.shape == (48, 64) and x.grad is None


@pytest.mark.parametrize("shape", [(0, 16), (2, 0, 16), (3, 16)])
def test_sizes(shape):
    layer = Float8Linear(16, 8)
    x = torch.randn(shape, requires_grad=True)
    out = layer(x)
    assert out.shape == (*shape[:-1], 8)
    out.sum().backward()
    assert x.grad.shape == shape and layer.weight.grad.isfinite().all()
    empty = Float8Linear(16, 8)
    empty.in_features, empty.weight = 0, nn.Parameter(torch.zeros(8, 0))
    assert torch.equal(empty(torch.zeros(3, 0)), empty.bias.detach().expand(3, 8))


def model_of(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))
    report = tcgemm.swap_linear(model, to=Float8Linear, **options)
    assert len(report.swapped) == 2
    return model


def train(model, call=None, steps=6, parts=1):
    torch.manual_seed(1)
    x, optimizer = torch.randn(64, 64), torch.optim.SGD(model.parameters(), lr=0.5)
    x = x.to(model[0].weight.device)
    target, losses = torch.tanh(x[:, :32]), []
    for _ in range(steps):
        total = 0.0
        for rows, expected in zip(x.chunk(parts), target.chunk(parts), strict=True):
            loss = ((call or model)(rows) - expected).square().mean() / parts
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


@BOTH
def test_a_model_learns(scaling):
    reference = model_of()
    tcgemm.swap_linear(reference, to=nn.Linear)
    assert type(reference[0]) is nn.Linear
    expected = train(reference, steps=30)
    losses = train(model_of(scaling=scaling), steps=30)
    assert expected[-1] < 0.6 * expected[0]
    torch.testing.assert_close(losses, expected, rtol=0.02, atol=0)


@BOTH
def test_gradient_checkpointing_changes_no_bit(scaling):
    expected = train(model_of(scaling=scaling))
    for reentrant in (False, True):
        model = model_of(scaling=scaling)

        def call(x, model=model, reentrant=reentrant):
            x = x.clone().requires_grad_()
            return checkpoint(model, x, use_reentrant=reentrant)

        assert train(model, call) == expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=[inductor, nightly])]
)
@BOTH
def test_compiled(scaling, backend, device):
    eager, model = (model_of(scaling=scaling).to(device) for _ in range(2))
    expected = train(eager)
    torch._dynamo.reset()
    losses = train(model, torch.compile(model, fullgraph=True, backend=backend))
    # The gelu of inductor has other roundings, and a value of 8 bits may round to its other side.
    near = 0 if backend == "aot_eager" else 1e-3
    torch.testing.assert_close(losses, expected, rtol=near, atol=0)
    state = model.state_dict()
    for name, value in eager.state_dict().items():
        difference = (state[name] - value).norm()
        assert difference <= (0.02 if near else 0) * value.norm(), name


@BOTH
def test_autocast(scaling):
    model = model_of(scaling=scaling)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(torch.randn(8, 64))
    assert out.dtype is torch.bfloat16
    out.float().sum().backward()
    assert model[0].weight.grad.dtype is torch.float32
    same = copy.deepcopy(model).bfloat16()
    assert all(buffer.dtype is torch.float32 for buffer in same.buffers())


def test_overflow_of_a_float16_gradient_is_seen():
    for bias, scaling in itertools.product((True, False), ("current", "delayed")):
        layer = Float8Linear(16, 8, bias, dtype=torch.float16, scaling=scaling)
        x = torch.randn(4, 16, dtype=torch.float16, requires_grad=True)
        g = torch.ones(4, 8, dtype=torch.float16)
        g[1, 2] = float("inf")
        layer(x).backward(g)
        assert x.grad.isnan().any() and layer.weight.grad.isnan().any()


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_the_products_are_counted(activation):
    layer, x = Float8Linear(16, 8, activation=activation), torch.randn(4, 16, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 4 * 16 * 8


def test_swapped_and_back():
    model = model_of(scaling="delayed", history=3, precision="fast")
    assert model[0].history == 3 and model[0].precision == "fast"
    tcgemm.swap_linear(model, to=nn.Linear)
    assert type(model[0]) is nn.Linear and not dict(model.named_buffers())
    train(model)  # the hook of the optimizer does not need the layers


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"scaling": "static"}, r'scaling is \'static\', but there are "current" and "delayed"'),
        ({"history": 0}, r"history is 0, but it must be a number of steps, at least 1"),
        ({"precision": "high"}, r'precision is \'high\', but products in float8 have "promoted"'),
        ({"activation": "tanh"}, r'activation is "tanh"'),
    ],
)
def test_options_that_are_refused(options, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        Float8Linear(4, 4, **options)
    if "activation" not in options:
        with pytest.raises(RuntimeError, match=sentence):
            tcgemm.swap_linear(nn.Linear(4, 4), to=Float8Linear, **options)


def test_calls_that_are_refused():
    layer, x = Float8Linear(8, 4), torch.randn(3, 8)
    with pytest.raises(RuntimeError, match=r"x is torch.float64, but it must be torch.float16"):
        layer(x.double())
    for weight in (torch.randn(8), torch.randn(()), torch.randn(1, 4, 8)):
        with pytest.raises(RuntimeError, match=r"weight has shape .*, but it must be a matrix"):
            torch.func.functional_call(layer, {"weight": weight}, x)
    with pytest.raises(RuntimeError, match=r"x has shape \(3, 7\), but the weight of shape"):
        layer(x[:, 1:])
    with pytest.raises(RuntimeError, match=r"Float8Linear: torch.func and forward mode are not"):
        torch.func.grad(lambda x: layer(x).sum())(x)
    x.requires_grad_()
    with pytest.raises(RuntimeError, match=r'activation is "tanh"'):
        torch.ops.tcgemm._float8_linear(x, layer.weight, *(None,) * 4, "tanh", None)
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=False)
    assert not first.requires_grad
    with pytest.raises(RuntimeError, match=r"second derivative is asked for"):
        torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    report = tcgemm.swap_linear(nn.Linear(8, 4).double(), to=Float8Linear)
    assert "only weights of torch.float16, torch.bfloat16, torch.float32" in str(report)


def test_as_an_operator():
    layer = Float8Linear(16, 8)
    for state in (
        (None, None, None),
        (None, torch.zeros(2), torch.zeros(1)),
        (torch.full((3,), 0.01), torch.zeros(2), torch.zeros(1)),
    ):
        arguments = (torch.randn(4, 16), layer.weight.detach(), layer.bias.detach(), *state)
        opcheck(
            torch.ops.tcgemm._float8_linear.default,
            (*arguments, "gelu", None),
            test_utils=("test_faketensor", "test_autograd_registration"),
        )


class TestDelayed:
    """The state of delayed scaling."""

    def layer(self, **options):
        torch.manual_seed(2)
        layer = Float8Linear(32, 16, scaling="delayed", history=3, **options)
        return layer, torch.optim.SGD(layer.parameters(), lr=0.0)

    def step(self, layer, optimizer, *factors):
        for factor in factors:
            x = torch.randn(8, 32) * factor
            layer(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return x

    def test_the_history_has_the_largest_magnitude_of_each_step(self):
        layer, optimizer = self.layer()
        torch.manual_seed(3)
        xs = [torch.randn(8, 32) for _ in range(6)]
        amax = []
        for pair in (xs[:2], xs[2:4], xs[4:]):
            for x in pair:
                layer(x).sum().backward()
            assert layer.amax[0] == torch.stack(pair).abs().max()
            optimizer.step()
            amax.insert(0, torch.stack(pair).abs().max().item())
        assert layer.amax_history[0].tolist() == amax
        assert (layer.amax_history[1] == layer.weight.abs().max()).all()
        assert (layer.amax_history[2] == 1).all()  # the gradient of the sum
        assert (layer.amax == 0).all() and (layer.gradient_amax == 0).all()
        limits = torch.tensor([448.0, 448.0, 57344.0])
        assert torch.equal(layer.scales, layer.amax_history.amax(1) / limits)

    def test_the_first_step_has_current_scaling(self):
        layer, optimizer = self.layer()
        current = Float8Linear(32, 16)
        current.load_state_dict({"weight": layer.weight, "bias": layer.bias})
        x = torch.randn(8, 32)
        assert torch.equal(layer(x), current(x))
        self.step(layer, optimizer, 1.0)
        assert not torch.equal(layer(x * 100), current(x * 100))  # saturates

    def test_a_step_without_a_gradient_is_no_measurement(self):
        """Zeros would make the scale of the gradient 1, and small gradients zeros."""
        layer, optimizer = self.layer()
        layer(torch.randn(8, 32)).mul(0).sum().backward()
        optimizer.step()
        assert not layer._measured and (layer.amax_history[2] == 0).all()
        layer(torch.randn(8, 32)).mul(1e-8).sum().backward()
        assert layer.weight.grad.abs().max() > 0
        optimizer.step()
        assert layer._measured and layer.amax_history[2, 0] == 1e-8

    def test_layers_of_one_optimizer_keep_their_own_state(self):
        torch.manual_seed(4)
        options = [{"scaling": "delayed", "history": steps} for steps in (3, 2, 3)]
        together = nn.ModuleList([Float8Linear(32, 16, **keywords) for keywords in options])
        alone = copy.deepcopy(together)
        optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in alone]
        optimizer = torch.optim.SGD(together.parameters(), lr=0.1)
        for _ in range(4):
            x = torch.randn(8, 32)
            for layers in (together, alone):
                for factor, layer in enumerate(layers, 1):
                    layer(x * factor).square().sum().backward()
            optimizer.step()
            for single in optimizers:
                single.step()
        for layer, expected in zip(together, alone, strict=True):
            state, expected_state = layer.state_dict(), expected.state_dict()
            assert state.keys() == expected_state.keys() >= {"weight", "scales", "amax_history"}
            assert all(torch.equal(state[name], expected_state[name]) for name in state)
        assert len({layer.scales[0].item() for layer in together}) == 3

    def test_the_layers_have_the_order_of_their_weights(self, monkeypatch):
        """The processes of a group reduce the magnitudes of all layers by one call."""
        layers = [Float8Linear(16, 16, scaling="delayed") for _ in range(20)]
        weights = [layer.weight for layer in layers]
        groups = [{"params": weights[10:]}, {"params": weights[9::-1]}]
        order = []
        monkeypatch.setattr(Float8Linear, "_after_step", staticmethod(order.extend))
        torch.optim.SGD(groups, lr=0.1).step()
        assert [id(item) for item in order] == [id(item) for item in layers[10:] + layers[9::-1]]

    @pytest.mark.gpu
    def test_a_step_does_not_wait_for_the_gpu(self):
        layer = Float8Linear(32, 16, scaling="delayed", device="cuda")
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        x = torch.randn(8, 32, device="cuda")
        for mode in ("default", "default", "error"):
            torch.cuda.set_sync_debug_mode(mode)
            try:
                layer(x).square().sum().backward()
                optimizer.step()
            finally:
                torch.cuda.set_sync_debug_mode("default")

    def test_old_magnitudes_are_forgotten(self):
        layer, optimizer = self.layer()
        self.step(layer, optimizer, 100.0)
        first = layer.scales[0].item()
        for _ in range(2):
            self.step(layer, optimizer, 1.0)
        assert layer.scales[0] == first
        self.step(layer, optimizer, 1.0)
        assert layer.scales[0] < first / 10

    def test_eval_mode_has_current_scaling_and_measures_nothing(self):
        layer, optimizer = self.layer()
        self.step(layer, optimizer, 1.0)
        x = torch.randn(8, 32) * 50
        current = Float8Linear(32, 16)
        current.load_state_dict({"weight": layer.weight, "bias": layer.bias})
        assert torch.equal(layer.eval()(x), current(x))
        assert (layer.amax == 0).all()

    def test_a_loaded_state_goes_on_with_the_same_bits(self):
        layer, optimizer = self.layer()
        self.step(layer, optimizer, 1.0)
        other, _ = self.layer()
        other.load_state_dict(layer.state_dict())
        x = torch.randn(8, 32) * 3
        for module in (other, copy.deepcopy(layer)):
            assert torch.equal(module(x), layer(x))
            assert torch.equal(module.amax, layer.amax)
        dense = nn.Linear(32, 16).state_dict()
        assert other.load_state_dict(dense).missing_keys == []
        with pytest.raises(RuntimeError, match=r"Missing key.*scales"):
            other.load_state_dict(dense | {"amax": torch.zeros(2)})
        names = {"weight", "bias", "amax", "gradient_amax", "amax_history", "scales"}
        assert set(layer.state_dict()) == names

    def test_a_copy_follows_its_own_optimizer(self):
        layer, _ = self.layer()
        other = copy.deepcopy(layer)
        optimizer = torch.optim.SGD(other.parameters(), lr=0.0)
        self.step(other, optimizer, 1.0)
        assert other._measured and not layer._measured

    @pytest.mark.parametrize("device", DEVICES)
    def test_scales_are_those_of_quantize(self, device):
        for dtype in (E4M3, E5M2):
            for x in (*torch.randn(100, 100), torch.zeros(4), torch.full((3,), 1e-40)):
                x = x.to(device)
                scale = scale_of(x.abs().max(), dtype)
                assert torch.equal(scale, tcgemm.quantize(x, dtype)[1])
