"""Column- and row-parallel QuantLinear and SparseLinear24, in two processes."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module

import tcgemm
from tcgemm.integrations.tensor_parallel import ColwiseParallel, RowwiseParallel
from tcgemm.nn import Float8Linear, QuantLinear, SparseLinear24
from tcgemm.ops.dtensor import full_tensor

from support import processes
from support.error_asserts import refusal
from support.processes import in_processes
from support.sharding import assert_compiled_is_eager, mesh_of_two_dimensions, shard

LAYERS = {
    "int8": {"to": QuantLinear, "dtype": torch.int8},
    "e4m3": {"to": QuantLinear, "dtype": torch.float8_e4m3fn},
    "tensor": {"to": QuantLinear, "granularity": "tensor"},
    "blocks": {"to": QuantLinear, "granularity": "128x128"},
    "sparse": {"to": SparseLinear24},
}
# Layers that learn, which other files test in two processes.
LEARNING = {
    "linear": {"to": tcgemm.nn.Linear},
    "float8": {"to": Float8Linear},
    "learns": {"to": SparseLinear24, "learns": True},
}
NAME = "tcgemm.integrations.tensor_parallel"
PLAN = {"up": ColwiseParallel, "down": RowwiseParallel}
every_kind = pytest.mark.parametrize("kind", LAYERS)
each_class = pytest.mark.parametrize("kind", ["int8", "e4m3", "sparse", "learns"])


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
    tcgemm.swap_linear(model, **(LAYERS | LEARNING)[kind])
    return model.requires_grad_()


def inputs():
    torch.manual_seed(12)
    return torch.randn(2, 8, 256).to(processes.device()).requires_grad_()


def plan():
    return {name: style() for name, style in PLAN.items()}


@every_kind
@in_processes
def test_a_column_parallel_layer(rank, kind):
    """Columns of the result have the bits of one process, and so has the gradient of each."""
    x, reference = inputs(), swapped(kind).up
    expected = reference(x)
    layer = parallelize_module(swapped(kind).up, processes.mesh(), ColwiseParallel())
    out = layer(x)
    assert layer.out_features == 256 and out.shape == (2, 8, 256)
    assert processes.same(out, expected[..., 256 * rank : 256 * rank + 256])
    gathered = parallelize_module(
        swapped(kind).up, processes.mesh(), ColwiseParallel(output_layouts=Replicate())
    )
    assert processes.same(gathered(x), expected)


@pytest.mark.parametrize("bias", [True, False])
@every_kind
@in_processes
def test_a_column_and_a_row_parallel_layer(rank, kind, bias):
    x, y = inputs(), inputs()
    reference = swapped(kind, bias=bias)
    expected = reference(x)
    expected.square().sum().backward()
    model = parallelize_module(swapped(kind, bias=bias), processes.mesh(), plan())
    out = model(y)
    out.square().sum().backward()
    rounding = 0.02 if kind in ("int8", "sparse") else 0.08  # e4m3 has four bits
    near = rounding * expected.abs().max().item()
    torch.testing.assert_close(out, expected, rtol=0, atol=near)
    near = 2 * rounding * x.grad.abs().max().item()
    torch.testing.assert_close(y.grad, x.grad, rtol=0, atol=near)
    copies = [torch.empty_like(out) for _ in range(2)]
    torch.distributed.all_gather(copies, out.detach())
    assert torch.equal(*copies)
    weights = sum(buffer.numel() for buffer in model.buffers())
    assert weights < 0.6 * sum(buffer.numel() for buffer in reference.buffers())
    with torch.no_grad():
        assert torch.equal(model.eval()(y), out)


@pytest.mark.parametrize("kind", ["e4m3", "sparse"])
@in_processes
def test_parts_of_a_sequence(rank, kind):
    """The input is a part of the sequence, and so is the result; the losses are added."""
    x, z = inputs(), inputs()
    model = parallelize_module(swapped(kind), processes.mesh(), plan())
    expected = model(x)
    g = torch.randn(expected.shape).to(x.device)
    torch.distributed.broadcast(g, 0)
    expected.backward(g)
    swapped(kind)(z).backward(g)
    styles = {
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    split = parallelize_module(swapped(kind), processes.mesh(), styles)
    part = x[:, 4 * rank : 4 * rank + 4].detach().requires_grad_()
    out = split(part)
    near = 0.08 * expected.abs().max().item() if out.is_cuda else 1e-5  # as above
    torch.testing.assert_close(out, expected[:, 4 * rank : 4 * rank + 4], rtol=1e-5, atol=near)
    out.backward(g[:, 4 * rank : 4 * rank + 4])
    for exact, bound in (
        (x, 0.08 if out.is_cuda else 1e-5),
        (z, 0.02 if kind == "sparse" else 0.1),
    ):
        part_of_grad = exact.grad[:, 4 * rank : 4 * rank + 4]
        near = bound * part_of_grad.abs().max().item()
        torch.testing.assert_close(part.grad, part_of_grad, rtol=1e-5, atol=near)
    for parameter, exact in zip(split.parameters(), model.parameters(), strict=True):
        near = bound * full_tensor(exact.grad).abs().max().item()
        parameter, exact = parameter.grad.full_tensor(), exact.grad.full_tensor()
        torch.testing.assert_close(parameter, exact, rtol=1e-5, atol=near)


@in_processes
def test_other_layers_are_torchs(rank):
    """Layers of torch have torch's styles."""
    x = inputs()
    model = Mlp().to(processes.device())
    expected = model(x)
    parallelize_module(model, processes.mesh(), plan())
    torch.testing.assert_close(model(x), expected)
    assert isinstance(model.up.weight, DTensor)


@every_kind
@in_processes
def test_distributed_checkpoints(rank, kind, tmp_path):
    """Saved in parts, read whole in one process, and read in parts again."""
    x = inputs()
    reference = swapped(kind)
    model = parallelize_module(swapped(kind), processes.mesh(), plan())
    expected = model(x)
    state = model.state_dict()
    assert all(isinstance(tensor, DTensor) for tensor in state.values())
    if kind == "sparse":
        assert state["up.weight.values"].shape == (512, 128)
        assert state["down.weight.metadata"].shape == (64, 64)
        assert state["down.weight.format"].full_tensor().tolist()[1:] == [2, 512]  # 1:2
    else:
        assert state["up.weight"].shape == (512, 256) and state["down.weight"].shape == (64, 512)
    checkpoint.save(state, checkpoint_id=tmp_path)
    content = {key: torch.zeros_like(tensor) for key, tensor in reference.state_dict().items()}
    checkpoint.load(content, checkpoint_id=tmp_path)
    for key, tensor in reference.state_dict().items():
        assert torch.equal(content[key].float(), tensor.float()), key
    twin = parallelize_module(swapped(kind), processes.mesh(), plan())
    with torch.no_grad():
        for tensor in (*twin.buffers(), *twin.parameters()):
            tensor.zero_()
    assert not torch.equal(twin(x), expected)
    twin.load_state_dict(content)  # whole tensors
    assert torch.equal(twin(x), expected)
    reread = {key: torch.zeros_like(tensor) for key, tensor in twin.state_dict().items()}
    checkpoint.load(reread, checkpoint_id=tmp_path)
    twin.load_state_dict(reread)  # DTensors
    assert torch.equal(twin(x), expected)


@in_processes
def test_a_dense_state_of_parallel_sparse_layers(rank):
    """A frozen sparse layer takes a dense weight, and prunes its part."""
    reference = swapped("sparse")
    model = parallelize_module(swapped("sparse"), processes.mesh(), plan())
    dense = Mlp().to(processes.device()).state_dict()
    dense = {name: 1 - item for name, item in dense.items()}
    for item in (reference, model):
        item.load_state_dict(dense)
    torch.testing.assert_close(model(inputs()), reference(inputs()))


@in_processes
def test_a_conv1d(rank):
    """The state of a Conv1D has weight (nx, nf): it is transposed before it is divided."""
    x = inputs()
    torch.manual_seed(13)
    dense, twin = (nn.Sequential(tcgemm.nn.Conv1D(64, 256)).to(x.device) for _ in range(2))

    def quantised(model):
        model = copy.deepcopy(model)
        assert tcgemm.swap_linear(model, to=QuantLinear, dtype=torch.int8).swapped == ["0"]
        return model

    columns = ColwiseParallel(output_layouts=Replicate())
    for style in (columns, RowwiseParallel(input_layouts=Replicate())):
        model = parallelize_module(quantised(dense), processes.mesh(), {"0": style})
        for exact_model in (dense, twin):
            if exact_model is twin:
                model.load_state_dict(twin.state_dict())
            out, expected = model(x), quantised(exact_model)(x)
            near = 0.02 * expected.abs().max().item()
            torch.testing.assert_close(out, expected, rtol=0, atol=near)
            assert style is not columns or processes.same(out, expected)


@each_class
@in_processes
def test_compiled(rank, kind):
    def make():
        return parallelize_module(swapped(kind), processes.mesh(), plan())

    assert_compiled_is_eager(make, inputs(), kind == "learns")


@pytest.mark.parametrize("kind", ["linear", "int8", "sparse"])
@in_processes
def test_fully_shard_of_parallel_layers(rank, kind):
    """fully_shard of the parallel layers, over a second dimension of the mesh."""
    mesh = mesh_of_two_dimensions()
    model = parallelize_module(swapped(kind), mesh["model"], plan())
    twin = copy.deepcopy(model)
    shard(twin, mesh=mesh["data"])
    results = []
    for item in (model, twin):
        x = inputs()
        optimizer = torch.optim.SGD(item.parameters(), lr=0.1)
        for _ in range(2):
            out = item(x)
            out.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append([out, x.grad, *map(full_tensor, item.parameters())])
    assert all(map(torch.equal, *results))
    shards = {name: item.clone() for name, item in twin.state_dict().items()}
    full_state = {name: full_tensor(item).clone() for name, item in model.state_dict().items()}
    assert shards.keys() == full_state.keys()
    expected = twin(inputs())
    for state in (shards, full_state)[: 1 if kind == "linear" else 2]:  # torch loads DTensors alone
        with torch.no_grad():
            for item in (*twin.parameters(), *twin.buffers()):
                item.zero_()
        assert not torch.equal(twin(inputs()), expected)
        twin.load_state_dict(state)
        assert torch.equal(twin(inputs()), expected)


@in_processes
def test_what_is_refused(rank):
    def error(layer, style):
        return refusal(lambda: parallelize_module(layer, processes.mesh(), style()))

    leave = "leave this layer out of the plan, or take another number of processes."
    assert error(QuantLinear(64, 33), ColwiseParallel) == (
        f"{NAME}.ColwiseParallel: out_features is 33, which 2 processes do not divide; {leave}"
    )
    assert error(QuantLinear(33, 64), RowwiseParallel) == (
        f"{NAME}.RowwiseParallel: in_features is 33, which 2 processes do not divide; {leave}"
    )
    assert error(QuantLinear(256, 128, granularity="128x128"), ColwiseParallel) == (
        f"{NAME}: out_features is 128 of a QuantLinear, and its scales are of blocks of 128, which "
        "2 processes do not divide; take granularity='row'."
    )
    assert error(QuantLinear(64, 64, activation="relu"), RowwiseParallel) == (
        f"{NAME}.RowwiseParallel: QuantLinear has the activation 'relu', which comes after the sum "
        "over all processes; put it into the layer before, which is column-parallel, or call it on "
        "the result."
    )
    half = {"dtype": torch.bfloat16}
    sparse = SparseLinear24(64, 68, method="transposable", **half)
    for layer, style, sizes in (
        (SparseLinear24(68, 64, **half), RowwiseParallel, "in_features is 68"),
        (sparse, ColwiseParallel, "out_features is 68"),
    ):
        assert error(layer, style) == (
            f"{NAME}: {sizes} of a SparseLinear24 of pattern 2:4, whose groups of 4 are not "
            f"divided among 2 processes; {leave}"
        )
    narrow = SparseLinear24(72, 64, dtype=torch.bfloat16)
    layer = parallelize_module(narrow, processes.mesh(), RowwiseParallel())
    for call in (layer.state_dict, lambda: layer.load_state_dict({}, strict=False)):
        assert refusal(call) == (
            "tcgemm.nn.SparseLinear24: 8 input features have one byte of positions, which is not "
            "divided; save and load the model before parallelize_module, or choose in_features "
            "that are a multiple of 8 in each process."
        )


@in_processes
def test_other_meshes(rank):
    mesh, device = processes.mesh(), processes.device()
    grid = init_device_mesh(device.type, (2, 1), mesh_dim_names=("data", "model"))
    for style in (ColwiseParallel, RowwiseParallel):
        for layer in (QuantLinear(64, 64), SparseLinear24(64, 64), nn.Linear(64, 64)):
            message = refusal(lambda s=style, x=layer: parallelize_module(x, grid, s()))
            assert message == (
                f"{NAME}.{style.__name__}: the mesh is {grid}, but it must have one dimension; "
                'pass such a part of it as mesh["model"].'
            )
            assert not any(isinstance(x, DTensor) for x in layer.parameters())
            assert not layer._forward_hooks and tuple(layer.weight.shape) == (64, 64)
        for whole_layer in (QuantLinear(64, 64), SparseLinear24(64, 64)):
            layer = parallelize_module(whole_layer.to(device), mesh, style())
            x = distribute_tensor(torch.ones(4, 64, device=device), grid["data"], [Replicate()])
            assert refusal(lambda layer=layer, x=x: layer(x)) == (
                f"{NAME}.{style.__name__}: x has the mesh {grid['data']}, but "
                f"{type(layer).__name__} has the mesh {mesh}; pass x.full_tensor(), distributed "
                "over the mesh of the layer."
            )


@in_processes
def test_a_mesh_of_one(rank):
    """A mesh of one process changes no bit."""
    names = ("data", "model")
    single = init_device_mesh(processes.device().type, (2, 1), mesh_dim_names=names)["model"]
    assert single.size() == 1
    for kind in LAYERS | LEARNING:
        results = []
        for model in (swapped(kind), parallelize_module(swapped(kind), single, plan())):
            x = inputs()
            out = model(x)
            out.square().sum().backward()
            gradients = [full_tensor(parameter.grad) for parameter in model.parameters()]
            results.append([out, x.grad, *gradients])
        # On a GPU a float32 Linear multiplies as with a prepared weight; a parallel one does not.
        near = 1e-4 if kind == "linear" and x.is_cuda else 0
        for result, exact in zip(*results, strict=True):
            torch.testing.assert_close(result, exact, rtol=near, atol=near, msg=kind)
