"""Column- and row-parallel QuantLinear and SparseLinear24, in two processes."""

import tempfile

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import parallelize_module

import tcgemm
from tcgemm.integrations.tensor_parallel import ColwiseParallel, RowwiseParallel
from tcgemm.nn import QuantLinear, SparseLinear24

from support import processes

LAYERS = {
    "int8": {"to": QuantLinear, "dtype": torch.int8},
    "e4m3": {"to": QuantLinear, "dtype": torch.float8_e4m3fn},
    "tensor": {"to": QuantLinear, "granularity": "tensor"},
    "blocks": {"to": QuantLinear, "granularity": "128x128"},
    "sparse": {"to": SparseLinear24},
}
PLAN = {"up": ColwiseParallel, "down": RowwiseParallel}
every_kind = pytest.mark.parametrize("kind", LAYERS)


class Mlp(nn.Module):
    def __init__(self, bias=True, hidden=512):
        super().__init__()
        torch.manual_seed(11)
        self.up = tcgemm.nn.Linear(256, hidden, bias, activation="relu")
        self.down = tcgemm.nn.Linear(hidden, 64, bias)

    def forward(self, x):
        return self.down(self.up(x))


def swapped(kind, **options):
    model = Mlp(**options).to(processes.device())
    tcgemm.swap_linear(model, **LAYERS[kind])
    return model


def inputs():
    torch.manual_seed(12)
    return torch.randn(2, 8, 256).to(processes.device()).requires_grad_()


def plan():
    return {name: style() for name, style in PLAN.items()}


def column_parallel(rank, kind):
    """Columns of the result have the bits of one process, and so has the gradient of each."""
    x, whole = inputs(), swapped(kind).up
    expected = whole(x)
    layer = parallelize_module(swapped(kind).up, processes.mesh(), ColwiseParallel())
    out = layer(x)
    assert layer.out_features == 256 and out.shape == (2, 8, 256)
    assert processes.same(out, expected[..., 256 * rank : 256 * rank + 256])
    gathered = parallelize_module(
        swapped(kind).up, processes.mesh(), ColwiseParallel(output_layouts=Replicate())
    )
    assert processes.same(gathered(x), expected)


@every_kind
def test_a_column_parallel_layer(kind, device):
    processes.run(column_parallel, kind, device=device)


def column_then_row(rank, kind, bias):
    x, y = inputs(), inputs()
    whole = swapped(kind, bias=bias)
    expected = whole(x)
    expected.square().sum().backward()
    model = parallelize_module(swapped(kind, bias=bias), processes.mesh(), plan())
    out = model(y)
    out.square().sum().backward()
    rounding = 0.02 if kind in ("int8", "sparse") else 0.08  # e4m3 has four bits
    near = rounding * expected.abs().max().item()
    torch.testing.assert_close(out, expected, rtol=0, atol=near)
    near = 2 * rounding * x.grad.abs().max().item()
    torch.testing.assert_close(y.grad, x.grad, rtol=0, atol=near)
    others = [torch.empty_like(out) for _ in range(2)]
    torch.distributed.all_gather(others, out.detach())
    assert torch.equal(*others)
    weights = sum(each.numel() for each in model.buffers())
    assert weights < 0.6 * sum(each.numel() for each in whole.buffers())
    with torch.no_grad():
        assert torch.equal(model.eval()(y), out)


@pytest.mark.parametrize("bias", [True, False])
@every_kind
def test_a_column_and_a_row_parallel_layer(kind, bias, device):
    processes.run(column_then_row, kind, bias, device=device)


def sequence_parallel(rank, kind):
    """The input is a part of the sequence, and so is the result."""
    x = inputs()
    model = parallelize_module(swapped(kind), processes.mesh(), plan())
    expected = model(x)
    styles = {
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    split = parallelize_module(swapped(kind), processes.mesh(), styles)
    part = x[:, 4 * rank : 4 * rank + 4].detach().requires_grad_()
    out = split(part)
    near = 0.08 * expected.abs().max().item() if out.is_cuda else 1e-5  # as above
    torch.testing.assert_close(out, expected[:, 4 * rank : 4 * rank + 4], rtol=1e-5, atol=near)
    out.sum().backward()
    assert part.grad is not None and part.grad.shape == part.shape


@pytest.mark.parametrize("kind", ["e4m3", "sparse"])
def test_parts_of_a_sequence(kind, device):
    processes.run(sequence_parallel, kind, device=device)


def mixed_plan(rank):
    """Layers of torch are those of torch's styles."""
    x = inputs()
    model = Mlp().to(processes.device())
    expected = model(x)
    parallelize_module(model, processes.mesh(), plan())
    torch.testing.assert_close(model(x), expected)
    assert isinstance(model.up.weight, DTensor)


def test_other_layers_are_torchs(device):
    processes.run(mixed_plan, device=device)


def checkpointed(rank, kind, folder):
    """Saved in parts, read whole in one process, and read in parts again."""
    x = inputs()
    whole = swapped(kind)
    model = parallelize_module(swapped(kind), processes.mesh(), plan())
    expected = model(x)
    state = model.state_dict()
    assert all(isinstance(each, DTensor) for each in state.values())
    if kind == "sparse":
        assert state["up.weight.values"].shape == (512, 128)
        assert state["down.weight.metadata"].shape == (64, 64)
        assert state["down.weight.format"].full_tensor().tolist()[1:] == [2, 512]  # 1:2
    else:
        assert state["up.weight"].shape == (512, 256) and state["down.weight"].shape == (64, 512)
    checkpoint.save(state, checkpoint_id=folder)
    read = {key: torch.zeros_like(each) for key, each in whole.state_dict().items()}
    checkpoint.load(read, checkpoint_id=folder)
    for key, each in whole.state_dict().items():
        assert torch.equal(read[key].float(), each.float()), key
    other = parallelize_module(swapped(kind), processes.mesh(), plan())
    with torch.no_grad():
        for each in (*other.buffers(), *other.parameters()):
            each.zero_()
    assert not torch.equal(other(x), expected)
    other.load_state_dict(read)  # whole tensors
    assert torch.equal(other(x), expected)
    again = {key: torch.zeros_like(each) for key, each in other.state_dict().items()}
    checkpoint.load(again, checkpoint_id=folder)
    other.load_state_dict(again)  # DTensors
    assert torch.equal(other(x), expected)


@every_kind
def test_distributed_checkpoints(kind, device):
    with tempfile.TemporaryDirectory() as folder:
        processes.run(checkpointed, kind, folder, device=device)


def dense_state(rank):
    """A frozen sparse layer takes a dense weight, and prunes its part."""
    whole = swapped("sparse")
    model = parallelize_module(swapped("sparse"), processes.mesh(), plan())
    dense = Mlp().to(processes.device()).state_dict()
    dense = {name: 1 - each for name, each in dense.items()}
    for each in (whole, model):
        each.load_state_dict(dense)
    torch.testing.assert_close(model(inputs()), whole(inputs()))


def test_a_dense_state_of_parallel_sparse_layers(device):
    processes.run(dense_state, device=device)


def refused(rank):
    def error(layer, style):
        with pytest.raises((ValueError, RuntimeError)) as found:
            parallelize_module(layer, processes.mesh(), style())
        return str(found.value)

    odd = QuantLinear(64, 33)
    assert "out_features is 33, which 2 processes do not divide" in error(odd, ColwiseParallel)
    wide = QuantLinear(33, 64)
    assert "in_features is 33, which 2 processes do not divide" in error(wide, RowwiseParallel)
    blocks = QuantLinear(256, 128, granularity="128x128")
    said = error(blocks, ColwiseParallel)
    assert "out_features is 128, and its scales are of blocks of 128" in said
    active = QuantLinear(64, 64, activation="relu")
    assert "has the activation 'relu'" in error(active, RowwiseParallel)
    narrow = SparseLinear24(72, 64, dtype=torch.bfloat16)
    layer = parallelize_module(narrow, processes.mesh(), RowwiseParallel())
    for call in (layer.state_dict, lambda: layer.load_state_dict({}, strict=False)):
        with pytest.raises(RuntimeError, match="one byte of positions, which is not divided"):
            call()


def test_what_is_refused(device):
    processes.run(refused, device=device)


def alone(rank):
    """A mesh of one process changes no bit."""
    x = inputs()
    single = init_device_mesh(processes.device().type, (2, 1), mesh_dim_names=("data", "model"))[
        "model"
    ]
    assert single.size() == 1
    for kind in LAYERS:
        model = parallelize_module(swapped(kind), single, plan())
        assert torch.equal(model(x), swapped(kind)(x))


def test_a_mesh_of_one(device):
    processes.run(alone, device=device)
