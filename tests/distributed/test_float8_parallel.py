"""Tensor parallelism of Float8Linear in two processes, with torch's styles."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tcgemm.nn import Float8Linear

from support import processes
from support.processes import in_processes
from support.samples import some
from support.sharding import mesh_of_two_dimensions, shard

STEPS = 4
PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}
both = pytest.mark.parametrize("scaling", ["current", "delayed"])


class Mlp(nn.Module):
    def __init__(self, bias, scaling):
        super().__init__()
        torch.manual_seed(5)
        options = {"scaling": scaling, "history": STEPS, "device": processes.device()}
        self.up = Float8Linear(64, 96, bias, activation="relu", **options)
        self.down = Float8Linear(96, 32, bias, **options)

    def forward(self, x):
        return self.down(self.up(x))


def inputs():
    torch.manual_seed(6)
    return torch.randn(2, 8, 64).to(processes.device())


def trained(model, x, processes_sum=False):
    """The losses and the gradient of x; each process may have a part of the sum of the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses, x = [], x.clone().requires_grad_()
    for _ in range(STEPS):
        loss = (model(x) - 1).square().mean() / (2 if processes_sum else 1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    if processes_sum:
        torch.distributed.all_reduce(losses)
    return losses, x.grad


def train(rank, bias, scaling, sequence):
    x, mesh = inputs(), processes.mesh()
    reference = Mlp(bias, scaling)
    model = copy.deepcopy(reference)
    plan = PLAN
    if sequence:
        styles = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
        plan = dict(zip(PLAN, styles, strict=True))
    parallelize_module(model, mesh, plan)
    part = slice(4 * rank, 4 * rank + 4) if sequence else slice(None)
    expected, exact = trained(reference, x)
    losses, grad = trained(model, x[:, part], sequence)
    exact = exact[:, part]
    torch.testing.assert_close(losses, expected, rtol=0.02, atol=0)
    assert losses[-1] < losses[0]
    assert (grad - exact).norm() < 0.1 * exact.norm()
    for (name, p), twin in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert isinstance(p, DTensor), name
        assert (p.full_tensor() - twin).norm() < 0.02 * twin.norm(), name
    if scaling == "delayed":
        for p, twin in ((model.up, reference.up), (model.down, reference.down)):
            state = p.state_dict()
            history = state["amax_history"].to_local()
            torch.testing.assert_close(history, twin.amax_history, rtol=0.1, atol=0)
            # The oldest step had the same x and weights.
            assert torch.equal(history[1, -1], twin.amax_history[1, -1])
            assert torch.equal(state["scales"].to_local(), p._state().scales)
            assert p._measured and twin._measured
        return model.down._state().history


@both
@pytest.mark.parametrize("bias", [False, True])
def test_training_is_near_that_of_one_process(bias, scaling, device):
    losses, other_losses = processes.run(train, bias, scaling, False, device=device)
    if scaling == "delayed":
        assert torch.equal(losses, other_losses)


@both
def test_parts_of_a_sequence(scaling, device):
    processes.run(train, True, scaling, True, device=device)


@some("scaling", ["current", "delayed"], ["current"])
@in_processes
def test_compiled_layers_have_the_same_bits(rank, scaling):
    model = Mlp(True, scaling)
    parallelize_module(model, processes.mesh(), PLAN)
    twin = copy.deepcopy(model)
    twin.compile(backend="aot_eager", fullgraph=True)
    losses, x_grad = trained(model, inputs())
    compiled_losses, compiled_x_grad = trained(twin, inputs())
    assert torch.equal(losses, compiled_losses) and torch.equal(x_grad, compiled_x_grad)
    assert torch.equal(*(network.up.weight.to_local() for network in (model, twin)))


@both
@in_processes
def test_fully_shard_of_parallel_layers(rank, scaling):
    """fully_shard of the parallel layers, over a second dimension of the mesh."""
    mesh = mesh_of_two_dimensions()
    model = Mlp(True, scaling)
    parallelize_module(model, mesh["model"], PLAN)
    twin = copy.deepcopy(model)
    shard(twin, mesh=mesh["data"])
    losses, x_grad = trained(model, inputs())
    sharded_losses, sharded_x_grad = trained(twin, inputs())
    assert torch.equal(losses, sharded_losses) and torch.equal(x_grad, sharded_x_grad)
    assert torch.equal(*(network.up.weight.full_tensor() for network in (model, twin)))


@in_processes
def test_the_state_of_delayed_scaling(rank, tmp_path):
    """The state of delayed scaling goes on where it was saved."""
    model, twin = (Mlp(True, "delayed") for _ in range(2))
    for network in (model, twin):
        parallelize_module(network, processes.mesh(), PLAN)
    trained(model, inputs())
    checkpoint.save(model.state_dict(), checkpoint_id=tmp_path)
    expected, exact = trained(model, inputs())
    state = twin.state_dict()
    checkpoint.load(state, checkpoint_id=tmp_path)
    twin.load_state_dict(state)
    assert twin.up._measured
    losses, x_grad = trained(twin, inputs())
    assert torch.equal(losses, expected) and torch.equal(x_grad, exact)


@in_processes
def test_a_part_has_the_bits_of_its_layer(rank):
    """A process has the bits of a layer with its part of the weight."""
    mesh = processes.mesh()
    torch.manual_seed(7)
    layer = Float8Linear(64, 34, device=processes.device())
    source, x = copy.deepcopy(layer), inputs()
    g = torch.randn(2, 8, 34).to(x.device)
    for placement, rows in ((Shard(0), Replicate()), (Shard(1), Shard(2)), (Replicate(), Shard(1))):
        dim = placement.dim if placement.is_shard() else None
        operand = distribute_tensor(x, mesh, [rows]).requires_grad_()
        at = Shard(0) if dim == 0 else Replicate()
        layer.weight = nn.Parameter(distribute_tensor(source.weight.detach(), mesh, [placement]))
        layer.bias = nn.Parameter(distribute_tensor(source.bias.detach(), mesh, [at]))
        out = layer(operand)
        out.backward(distribute_tensor(g, mesh, [Replicate()]))
        local = Float8Linear(*layer.weight.to_local().shape[::-1], device=x.device)
        local.weight = nn.Parameter(layer.weight.to_local().detach())
        share = layer.bias.to_local().detach() / (2 if dim == 1 else 1)
        local.bias = nn.Parameter(share)
        part = operand.to_local().detach().requires_grad_()
        part_of_g = g.chunk(2, 2)[rank] if dim == 0 else g.chunk(2, 1)[rank] if dim is None else g
        result = local(part)
        result.backward(part_of_g)
        assert out.shape == (2, 8, 34)
        assert out.placements == ((Shard(2), Partial(), Shard(1))[2 if dim is None else dim],)
        assert torch.equal(out.to_local(), result)
        if rows != Replicate():  # whose gradient is a sum over the processes
            assert torch.equal(operand.grad.redistribute(mesh, [rows]).to_local(), part.grad)
        weight_grad = layer.weight.grad
        if dim is not None:
            assert torch.equal(weight_grad.to_local(), local.weight.grad)
        for parameter in (layer.weight, layer.bias):  # as clip_grad_norm_ expects them
            assert parameter.grad.placements == parameter.placements
        expected = g.flatten(0, 1).sum(0)
        torch.testing.assert_close(layer.bias.grad.full_tensor(), expected)
        reference = copy.deepcopy(source)
        z = x.clone().requires_grad_()
        reference(z).backward(g)
        for tensor, exact in ((operand, z), (layer.weight, reference.weight)):
            full = tensor.grad.full_tensor()
            assert (full - exact.grad).norm() < 0.1 * exact.grad.norm()
        layer.zero_grad()


@in_processes
def test_what_is_refused(rank):
    mesh, x = processes.mesh(), inputs()

    def place(tensor, *at, on=mesh):
        return nn.Parameter(distribute_tensor(tensor.detach(), on, at))

    layer = Float8Linear(64, 32, False, device=x.device)
    weight = layer.weight
    layer.weight = place(weight, Shard(0))
    with pytest.raises(RuntimeError, match="x is a plain tensor, but x, the weight or the bias"):
        layer(x)
    operand = distribute_tensor(x, mesh, [Replicate()])
    layer.weight = weight
    with pytest.raises(RuntimeError, match="weight is a plain tensor"):
        layer(operand)
    layer.weight, layer.activation = place(weight, Shard(1)), "gelu"
    with pytest.raises(RuntimeError, match="activation 'gelu', which comes after the sum"):
        layer(operand)
    grid = init_device_mesh(x.device.type, (2, 1))
    layer.weight = place(weight, Replicate(), Replicate(), on=grid)
    with pytest.raises(RuntimeError, match="must have the same one, of one dimension"):
        layer(distribute_tensor(x, grid, [Replicate(), Replicate()]))
    halves = DTensor.from_local(weight.detach(), mesh, [Partial()])
    layer.weight = nn.Parameter(halves)
    with pytest.raises(RuntimeError, match="the weight has the placement"):
        layer(operand)
