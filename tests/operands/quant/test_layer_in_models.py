"""tcgemm.nn.QuantLinear in models: what other code reads of its weight, parameters, averages."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel

import tcgemm
from tcgemm.nn import QuantLinear

from support.cases import BF16, F16, F32, reloaded

E4M3, S8 = torch.float8_e4m3fn, torch.int8
dtypes = pytest.mark.parametrize("dtype", [E4M3, S8], ids=str)


def mlp(bias=True, dtype=E4M3):
    model = nn.Sequential(nn.Linear(64, 32, bias), nn.ReLU(), nn.Linear(32, 8, bias))
    tcgemm.swap_linear(model, to=QuantLinear, dtype=dtype)
    return model


@dtypes
def test_t5_casts_its_activations_to_the_dtype_of_a_weight(dtype):
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=2
    )
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config).eval()
    words = torch.arange(10)[None]
    call = {"input_ids": words, "decoder_input_ids": words}
    with torch.no_grad():
        expected = model(**call).logits
        tcgemm.swap_linear(model, to=QuantLinear, dtype=dtype)
        assert isinstance(model.encoder.block[0].layer[1].DenseReluDense.wo, QuantLinear)
        logits = model(**call).logits
        error = (logits - expected).norm() / expected.norm()
        assert error < (0.15 if dtype is E4M3 else 0.05)
        assert model.to(BF16)(**call).logits.dtype is BF16


@dtypes
def test_what_other_code_reads_of_the_weight(dtype):
    linear = nn.Linear(64, 32)
    layer = QuantLinear.from_linear(linear, dtype)
    weight, x = layer.weight, torch.randn(3, 64)
    dense = tcgemm.dequantize(weight.values, weight.scale)
    assert isinstance(weight, torch.Tensor) and weight.dtype is F32
    assert weight.shape == (32, 64) and weight.values.dtype is dtype and not weight.requires_grad
    assert torch.equal(weight.to_dense(), dense) and torch.equal(weight.detach() + 0, dense)
    assert torch.equal(F.linear(x, weight, layer.bias), F.linear(x, dense, layer.bias))
    assert weight.to(BF16).dtype is BF16 and weight.t().shape == (64, 32)
    assert f"values={dtype}" in repr(weight)
    with pytest.raises(RuntimeError, match=r"QuantLinear: an operator writes into weight"):
        weight.mul_(2)
    with pytest.raises(RuntimeError, match=r"QuantLinear: an operator writes into weight"):
        weight.data.zero_()
    assert QuantLinear.from_linear(linear.to(F16), dtype).weight.dtype is F16
    assert copy.deepcopy(layer).to(BF16).weight.dtype is BF16
    torch._dynamo.reset()
    read = torch.compile(
        lambda x: layer(x.to(layer.weight.dtype)), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(read(x), layer(x))


def test_assigned_weights():
    layer = QuantLinear.from_linear(nn.Linear(64, 32))
    other = QuantLinear.from_linear(nn.Linear(64, 32))
    for value in (other.weight.values, nn.Parameter(other.weight.values, requires_grad=False)):
        layer.weight, layer.weight_scale, layer.bias = value, other.weight_scale, other.bias
        x = torch.randn(3, 64)
        assert torch.equal(layer(x), other(x)) and list(layer.state_dict()) == list(
            other.state_dict()
        )
    for value in (torch.randn(32, 64), nn.Parameter(torch.randn(32, 64)), None, "x", S8):
        with pytest.raises(
            RuntimeError, match=r"QuantLinear: weight is assigned .*load_state_dict"
        ):
            layer.weight = value


@dtypes
def test_offloaded_by_accelerate(dtype):
    accelerate = pytest.importorskip("accelerate")
    model, x = mlp(dtype=dtype), torch.randn(3, 64)
    expected = model(x)
    accelerate.cpu_offload(model, execution_device="cpu")
    assert torch.equal(model(x), expected)
    layer = QuantLinear.from_linear(nn.Linear(64, 32), dtype)
    layer._buffers["weight"] = layer.weight.to_dense()
    with pytest.raises(RuntimeError, match=r"the buffer of the 8-bit weight was replaced by"):
        layer(x)
    weight = QuantLinear.from_linear(nn.Linear(64, 32), dtype).weight.to("meta")
    assert weight.values.is_meta and weight.values.dtype is dtype and weight.dtype is F32


@dtypes
@pytest.mark.parametrize("bias", [False, True])
def test_parameters(bias, dtype):
    model = mlp(bias, dtype)
    first = next(model.parameters())  # without a bias: the empty one of the first layer
    assert first.device.type == "cpu" and first.dtype is F32
    assert next(model.half().parameters()).dtype is torch.float16
    model.float()
    assert sum(tensor.numel() for tensor in model.parameters()) == 40 * bias
    assert not any(tensor.requires_grad for tensor in model.parameters())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    names = ["weight", "weight_scale", *(["bias"] if bias else [])]
    assert list(before) == [f"{layer}.{name}" for layer in (0, 2) for name in names]
    assert before["0.weight"].dtype is dtype
    optimizer = torch.optim.AdamW([*model.parameters(), nn.Parameter(torch.ones(1))], lr=1.0)
    x = torch.randn(3, 64, requires_grad=True)
    model(x).sum().backward()
    optimizer.step()
    after = model.state_dict()
    other = mlp(bias, dtype)
    assert not any(other.load_state_dict(after))  # neither missing nor unexpected keys
    assert next(other.parameters()).device.type == "cpu"
    assert all(torch.equal(after[name].float(), tensor.float()) for name, tensor in before.items())


@dtypes
def test_averaged_models(dtype):
    model, x = mlp(dtype=dtype), torch.randn(3, 64)
    for use_buffers in (False, True):
        average = AveragedModel(model, use_buffers=use_buffers)
        for _ in range(3):
            average.update_parameters(model)
        assert torch.equal(average(x), model(x))


def test_float64():
    model = mlp().double()
    assert model[0].weight.dtype is torch.float64
    with pytest.raises(RuntimeError, match=r"tcgemm\.quantize: x is torch\.float64"):
        model(torch.randn(3, 64).double())
    with pytest.raises(RuntimeError, match=r"quantized_linear: bias is torch\.float64, but it"):
        model(torch.randn(3, 64))
    assert model[0].to_linear().weight.dtype is torch.float64


@dtypes
def test_stacked_layers(dtype):
    models = [mlp(dtype=dtype) for _ in range(2)]
    parameters, buffers = torch.func.stack_module_state(models)

    def call(parameters, buffers, x):
        return torch.func.functional_call(models[0], (parameters, buffers), (x,))

    x = torch.randn(3, 64)
    result = torch.func.vmap(call, (0, 0, None))(parameters, buffers, x)
    assert torch.equal(result, torch.stack([model(x) for model in models]))


def test_share_memory():
    model, x = mlp(), torch.randn(3, 64)
    expected = model(x)
    model.share_memory()
    assert all(tensor.is_shared() for tensor in (*model.parameters(), *model.buffers()))
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("value", ["x", None, torch.randn(4, 8), nn.Conv1d(1, 1, 1)])
def test_what_is_no_linear_is_refused(value):
    with pytest.raises(TypeError, match=r"QuantLinear.from_linear: linear must be a torch.nn.Lin"):
        QuantLinear.from_linear(value)


def test_states_of_words_are_refused():
    layer = QuantLinear.from_linear(nn.Linear(64, 32))
    state = layer.state_dict()
    for name in state:
        with pytest.raises(RuntimeError, match=rf"{name}.*(torch\.Tensor|expected torch.Tensor)"):
            layer.load_state_dict({**state, name: "word"})
    with pytest.raises(RuntimeError, match=r'Missing key.*"weight"'):
        layer.load_state_dict({"weight_scale": state["weight_scale"], "bias": state["bias"]})
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"other"'):
        layer.load_state_dict({**state, "other": torch.ones(1)})
    layer.load_state_dict(reloaded(state))


@pytest.mark.nightly
def test_aot_inductor(tmp_path):
    """torch 2.11 gives operators another dtype than the one that was passed (pytorch#169157)."""
    model, x = mlp().eval(), torch.randn(3, 64)
    program = torch.export.export(model, (x,))
    path = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "model.pt2")
    )
    assert torch.equal(torch._inductor.aoti_load_package(path)(x), model(x))
