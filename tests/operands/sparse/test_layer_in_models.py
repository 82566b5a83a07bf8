"""tcgemm.nn.SparseLinear24 in models: tied weights, plain buffers, export, transforms, sharing."""

import copy

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import tcgemm
from tcgemm.nn import SparseLinear24

from support.cases import BF16, F32

IN, OUT, ROWS = 36, 20, 24
learning = pytest.mark.parametrize("learns", [False, True], ids=["frozen", "learns"])


def layer_of(learns=False, dtype=BF16, **options):
    return SparseLinear24.from_linear(nn.Linear(IN, OUT, dtype=dtype), learns=learns, **options)


def rows(dtype=BF16):
    return torch.randn(ROWS, IN).to(dtype)


# Tied weights.


class Tied(nn.Module):
    """A language model's embedding and head, registered in this order or the other."""

    def __init__(self, head_first=False):
        super().__init__()
        modules = {"emb": nn.Embedding(64, 32), "head": nn.Linear(32, 64, bias=False)}
        for name in sorted(modules, reverse=head_first):
            self.add_module(name, modules[name])
        self.head.weight = self.emb.weight

    def forward(self, words):
        return self.head(self.emb(words))


def tied_layer(linear):
    """The learning layer of a Linear, with the same Parameter."""
    layer = SparseLinear24.from_linear(linear, learns=True)
    layer.weight = linear.weight
    return layer


def tied(**options):
    model = Tied(**options)
    model.head = tied_layer(model.head)
    return model


@pytest.mark.parametrize("head_first", [False, True])
def test_a_checkpoint_without_the_tied_weight_leaves_the_parameter_alone(head_first):
    model, other = (tied(head_first=head_first) for _ in range(2))
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "head.weight"}
    missing, unexpected = other.load_state_dict(state, strict=False)
    assert not unexpected and (missing == ["head.weight"] or head_first)
    assert torch.equal(other.emb.weight, model.emb.weight)
    assert other.head.weight is other.emb.weight
    words = torch.arange(64)
    assert torch.equal(other(words), model(words))
    other.load_state_dict(model.state_dict())


def test_safetensors_loads_a_tied_model(tmp_path):
    model, other = tied(), tied()
    safetensors.torch.save_model(model, tmp_path / "model.safetensors")
    safetensors.torch.load_model(other, tmp_path / "model.safetensors")
    words = torch.arange(64)
    assert torch.equal(other.emb.weight, model.emb.weight)
    assert torch.equal(other(words), model(words))


def test_a_tied_llama_is_saved_and_loaded(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    models = [transformers.LlamaForCausalLM(config).eval() for _ in range(2)]
    for model in models:
        report = tcgemm.swap_linear(
            model, lambda _, name: name != "lm_head", to=SparseLinear24, learns=True
        )
        assert len(report.swapped) == 7
        model.lm_head = tied_layer(model.lm_head)
    first, other = models
    first.save_pretrained(tmp_path)
    state = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in state
    other.load_state_dict(state, strict=False)
    words = torch.arange(64)[None]
    with torch.no_grad():
        assert torch.equal(other(words).logits, first(words).logits)
    assert torch.equal(other.model.embed_tokens.weight, first.model.embed_tokens.weight)


def test_a_frozen_state_loads_into_a_learning_layer_twice():
    state = layer_of().state_dict()
    layer = SparseLinear24(IN, OUT, dtype=BF16, learns=True)
    for _ in range(2):
        assert str(layer.load_state_dict(state)) == "<All keys matched successfully>"
    assert (layer.weight == 0).float().mean() == 0.5


# The activation, and tensors that somebody exchanges.


@learning
def test_a_changed_activation_is_used(learns):
    layer, x = layer_of(learns).eval(), rows()
    with torch.no_grad():
        plain = layer(x)
        layer.activation = "relu"
        assert torch.equal(layer(x), plain.relu())
        layer.activation = None
        assert torch.equal(layer(x), plain)


@learning
def test_exchanged_values_are_multiplied(learns):
    layer, x = layer_of(learns).eval(), rows()
    with torch.no_grad():
        for _ in range(2):
            layer(x)
        layer.compressed.values = -layer.compressed.values
        assert torch.equal(layer(x), layer.to_linear()(x))
        prefix = "kept" if learns else "weight"
        layer._buffers[f"{prefix}_values"] = 2 * layer.compressed.values
        if not learns:  # a layer that learns takes its values from the dense weight
            assert torch.equal(layer(x), layer.to_linear()(x))
        assert torch.equal(layer.compressed.values, layer._buffers[f"{prefix}_values"])


@pytest.mark.parametrize("layer", ["Linear", "SparseLinear24"])
@pytest.mark.parametrize("activation", ["geluu", torch.relu, nn.ReLU(), ["relu"], 3])
def test_the_activation_is_checked_when_it_is_set(layer, activation):
    kind = getattr(tcgemm.nn, layer)
    sentence = rf"tcgemm\.nn\.{layer}: activation is .* but it must be \"relu\", .* or None"
    with pytest.raises(RuntimeError, match=sentence):
        kind(8, 4, activation=activation)
    module = kind(8, 4)
    with pytest.raises(RuntimeError, match=sentence):
        module.activation = activation
    assert module.activation is None and "activation" not in module._modules


@learning
def test_what_is_no_sparse_tensor_is_refused_as_the_weight(learns):
    layer = layer_of(learns)
    name = "kept" if learns else "weight"
    for value in (nn.Parameter(torch.randn(OUT, IN)), torch.randn(OUT, IN), None):
        with pytest.raises(RuntimeError, match=rf"SparseLinear24: {name} is assigned a .*compress"):
            setattr(layer, name, value)


@pytest.mark.parametrize("value", ["x", None, torch.randn(4, 8), nn.Conv1d(1, 1, 1)])
def test_what_is_no_linear_is_refused(value):
    with pytest.raises(TypeError, match=r"from_linear: linear must be a torch.nn.Linear, but"):
        SparseLinear24.from_linear(value)


@learning
def test_states_of_words_are_refused(learns):
    layer = layer_of(learns)
    state = layer.state_dict()
    for name in state:
        with pytest.raises(RuntimeError, match=rf"{name}|expected torch.Tensor"):
            layer.load_state_dict({**state, name: "word"})
    for numbers in (torch.tensor([1, 4]), torch.tensor([1.0, 4.0, IN])):
        with pytest.raises(RuntimeError, match=r"three integers: version, group and K"):
            layer.load_state_dict({**state, "weight.format": numbers})


# Buffers are plain tensors.


@learning
@pytest.mark.parametrize("method", ["magnitude", "transposable"])
def test_buffers_are_plain_and_share_the_memory(method, learns):
    layer = layer_of(learns, method=method)
    for other in (layer, copy.deepcopy(layer), copy.deepcopy(layer).half(), layer.to("cpu")):
        buffers = list(other.buffers())
        assert all(type(tensor) is torch.Tensor for tensor in buffers)
        inside = other.compressed.tensors().values()
        assert {tensor.data_ptr() for tensor in buffers} == {tensor.data_ptr() for tensor in inside}
    x, other = rows(), layer_of(learns, method=method)
    with torch.no_grad():
        layer.eval()(x)
        for buffer, other_buffer in zip(layer.buffers(), other.buffers(), strict=True):
            buffer.copy_(other_buffer)  # as a broadcast does
        layer.bias.copy_(other.bias)
        if learns:
            layer.weight.copy_(other.weight)
        assert torch.equal(layer(x), other(x))


@learning
def test_averaged_models(learns):
    model = nn.Sequential(layer_of(learns), nn.ReLU())
    average = AveragedModel(model, use_buffers=True)
    for _ in range(3):
        average.update_parameters(model)
    x = rows()
    assert torch.equal(average.eval()(x), model.eval()(x))


def test_an_average_of_positions_is_refused():
    model, average = layer_of(True, F32), None
    averaged_model = AveragedModel(model, use_buffers=True)
    averaged_model.update_parameters(model)
    with torch.no_grad():
        model.weight.copy_(torch.randn(OUT, IN))
    model.refresh()
    averaged_model.update_parameters(model)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"positions .*refresh\(\)"):
        average = averaged_model.eval()(rows(F32))
    assert average is None


@learning
def test_buffers_that_hold_no_positions_are_refused(learns):
    """transformers gives buffers that are not persistent memory that nobody wrote."""
    layer, prefix = layer_of(learns).eval(), "kept" if learns else "weight"
    setattr(layer, f"{prefix}_metadata", torch.zeros_like(getattr(layer, f"{prefix}_metadata")))
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"positions of the kept elements"):
        layer(rows())


@learning
def test_shared_memory(learns):
    layer, x = layer_of(learns), rows()
    expected = layer(x)
    assert layer.share_memory() is layer
    assert all(tensor.is_shared() for tensor in (*layer.buffers(), *layer.parameters()))
    assert torch.equal(layer(x), expected)


# Traces and transforms.


@learning
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dtype", [BF16, F32])
def test_exported(dtype, strict, learns):
    layer = layer_of(learns, dtype)
    layer.activation = "gelu"
    rows_of = torch.export.Dim("rows", min=2, max=64)
    x = torch.randn(3, IN).to(dtype)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: rows_of},), strict=strict)
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert "tcgemm.scaled_mm.default" in targets
    for shape in ((5, IN), (ROWS, IN)):
        x = torch.randn(shape).to(dtype)
        assert torch.equal(program.module()(x), layer(x))
    program = torch.export.export(layer, (x[0],), strict=strict)
    assert torch.equal(program.module()(x[0]), layer(x[0]))


@learning
def test_symbolic_trace(learns):
    layer, x = layer_of(learns), rows()
    traced = torch.fx.symbolic_trace(layer)
    assert torch.equal(traced(x), layer(x))
    if learns:
        traced(x).float().sum().backward()
        grad = layer.weight.grad.clone()
        layer.weight.grad = None
        layer(x).float().sum().backward()
        assert torch.equal(layer.weight.grad, grad)


@learning
def test_saved_by_jit_trace(learns, tmp_path):
    layer, x = layer_of(learns).eval(), rows()
    with torch.no_grad():
        torch.jit.trace(layer, x).save(tmp_path / "layer.pt")
        assert torch.equal(torch.jit.load(tmp_path / "layer.pt")(x), layer(x))


def test_transforms_of_the_values_are_refused():
    """tests/nn/test_func.py has transforms of the dense weight."""
    x = rows()
    layers = [layer_of() for _ in range(2)]
    parameters, buffers = torch.func.stack_module_state(layers)

    def call(parameters, buffers, x):
        return torch.func.functional_call(layers[0], (parameters, buffers), (x,))

    with pytest.raises(RuntimeError, match=r"SparseLinear24: torch.func transforms the values"):
        torch.func.vmap(call, (0, 0, None))(parameters, buffers, x)
    frozen = layer_of()
    assert torch.func.vmap(frozen)(x[None]).shape == (1, ROWS, OUT)


@learning
def test_float64_is_refused_before_anything_changes(learns):
    layer = layer_of(learns)
    with pytest.raises(RuntimeError, match=r"tcgemm\.SparseTensor24: .*float64"):
        layer.double()
    assert {parameter.dtype for parameter in layer.parameters()} == {BF16}
    layer(rows())
