"""Column- and row-parallel SparseLinear24 that learn, in two processes."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import parallelize_module

import tcgemm
from tcgemm.integrations.tensor_parallel import ColwiseParallel, RowwiseParallel
from tcgemm.nn import SparseLinear24
from tcgemm.ops.dtensor import full_tensor

from support import processes
from support.processes import in_processes
from support.sharding import mesh_of_two_dimensions, shard

PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}
OPTIONS = {
    "masked": {"refresh_every": 0},
    "never": {"refresh_every": 0, "gradient": "straight_through"},
    "straight_through": {"refresh_every": 2, "gradient": "straight_through"},
    "transposable": {"refresh_every": 2, "method": "transposable", "gradient": "straight_through"},
}
every_kind = pytest.mark.parametrize("kind", OPTIONS)
STEPS = 6


def model_of(kind, seed=3, bias=True):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(32, 48, bias), nn.ReLU(), nn.Linear(48, 24, bias))
    if kind == "transposable":
        model.bfloat16()
    tcgemm.swap_linear(model, to=SparseLinear24, learns=True, **OPTIONS[kind])
    return model.to(processes.device())


def parallel(kind, seed=3):
    return parallelize_module(model_of(kind, seed), processes.mesh(), PLAN)


def trained(model, steps=STEPS, clip=0.05):
    dtype = model[0].weight.dtype
    torch.manual_seed(4)
    x, target = (torch.randn(16, size, dtype=dtype).to(processes.device()) for size in (32, 24))
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    losses = []
    for _ in range(steps):
        loss = (model(x) - target).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        losses += [loss.item(), float(full_tensor(norm))]
    return torch.tensor(losses)


def near(tensor):
    return 0.02 if tensor.dtype is torch.bfloat16 or tensor.is_cuda else 1e-4


@every_kind
@in_processes
def test_training_is_that_of_one_process(rank, kind):
    """The weights, the kept positions and the clipped norm are as in one process."""
    reference, model = model_of(kind), parallel(kind, 3 + 5 * rank)  # the model of process 0 counts
    expected, curve = trained(reference), trained(model)
    bound = near(reference[0].weight)
    torch.testing.assert_close(curve, expected, rtol=bound, atol=bound)
    assert expected[2 * STEPS - 2] < expected[0]
    for index in (0, 2):
        layer, exact = model[index], reference[index]
        assert isinstance(layer.weight, DTensor) and isinstance(layer.bias, DTensor)
        if layer.refresh_every:  # else nothing needs the number
            assert layer._changes == exact._changes == STEPS - 1
        for name in ("weight", "bias"):
            full = getattr(layer, name).full_tensor()
            torch.testing.assert_close(full, getattr(exact, name), rtol=bound, atol=bound)
        if bound < 0.01:  # roundings do not decide which elements are kept
            piece = (slice(24 * rank, 24 * rank + 24), slice(None))[:: 1 if index == 0 else -1]
            positions = exact.kept.to_dense()[piece]
            torch.testing.assert_close(layer.kept.to_dense(), positions, rtol=bound, atol=bound)
            assert torch.equal(layer.kept.to_dense() == 0, positions == 0)


@every_kind
@in_processes
def test_results_between_steps(rank, kind):
    """After a step, and after a checkpoint was read into the weight, which no version shows."""
    model, local = (model_of(kind, bias=False) for _ in range(2))  # the prepared path has no bias
    parallelize_module(model, processes.mesh(), PLAN)
    x = torch.randn(4, 32, dtype=local[0].weight.dtype, device=processes.device())
    torch.distributed.broadcast(x, 0)
    bound = near(x)
    model.eval()
    local.eval()
    for change in ("none", "step", "read"):
        if change == "step":
            trained(local, 1)
            trained(model, 1)
        with torch.no_grad():
            if change == "read":
                local[2].weight.mul_(2)
                model[2].weight.to_local().mul_(2)
            out = model(x)
            assert torch.equal(model(x), out)
            torch.testing.assert_close(out, local(x), rtol=bound, atol=bound)
        torch.testing.assert_close(model(x).detach(), out)
    weight, exact = (network.to_linear().weight for network in (model[0], local[0]))
    torch.testing.assert_close(weight, exact[24 * rank : 24 * rank + 24], rtol=bound, atol=1e-3)


@in_processes
def test_the_kept_positions_stay(rank):
    """The positions are those that the layer had, whatever the dense weight has become."""
    local = model_of("never")
    trained(local, clip=10)
    assert not torch.equal(local[0].kept.to_dense() != 0, tcgemm.prune24(local[0].weight) != 0)
    model = parallelize_module(copy.deepcopy(local), processes.mesh(), PLAN)
    x = torch.ones(4, 32, device=processes.device())
    bound = near(x)
    torch.testing.assert_close(model.eval()(x), local.eval()(x), rtol=bound, atol=bound)


@in_processes
def test_states(rank, tmp_path):
    """Saved in parts, read in one process and in parts, from parts and from a dense weight."""
    model = parallel("straight_through")
    trained(model, 3)
    x = torch.ones(4, 32, device=processes.device())
    expected = model.eval()(x).detach()
    state = model.state_dict()
    assert all(isinstance(tensor, DTensor) for tensor in state.values())
    assert state["0.weight.values"].shape == (48, 16) and state["2.weight"].shape == (24, 48)
    assert state["2.weight.format"].full_tensor().tolist()[1:] == [2, 48]
    checkpoint.save(state, checkpoint_id=tmp_path)
    reference = model_of("straight_through", 5)
    saved = {key: torch.zeros_like(tensor) for key, tensor in reference.state_dict().items()}
    checkpoint.load(saved, checkpoint_id=tmp_path)
    reference.load_state_dict(saved)
    bound = near(x)
    torch.testing.assert_close(reference.eval()(x).detach(), expected, rtol=bound, atol=bound)
    for content in (saved, state):
        twin = parallel("straight_through", 6)
        twin.load_state_dict(content)
        assert torch.equal(twin.eval()(x).detach(), expected)
        for parameter, exact in zip(twin.parameters(), model.parameters(), strict=True):
            assert torch.equal(parameter.to_local(), exact.to_local())
    frozen = {key: tensor for key, tensor in saved.items() if not key.endswith(".weight")}
    dense = {key: tensor for key, tensor in saved.items() if key.endswith(("bias", ".weight"))}
    for content in (frozen, dense):
        twin = parallel("straight_through", 7)
        reference = model_of("straight_through", 7)
        for tensor in (twin, reference):
            tensor.load_state_dict(content)
        out = reference.eval()(x).detach()
        torch.testing.assert_close(twin.eval()(x).detach(), out, rtol=bound, atol=bound)


@in_processes
def test_fully_shard_of_parallel_layers(rank):
    """fully_shard of the parallel layers, over a second dimension of the mesh."""
    mesh = mesh_of_two_dimensions()
    model = parallelize_module(model_of("straight_through"), mesh["model"], PLAN)
    twin = copy.deepcopy(model)
    shard(twin, mesh=mesh["data"])
    assert torch.equal(trained(model), trained(twin))
    state, exact = twin.state_dict(), model.state_dict()
    assert state.keys() == exact.keys()
    for name, tensor in exact.items():
        assert torch.equal(state[name].full_tensor(), tensor.full_tensor()), name


@in_processes
def test_the_gradient_of_a_bias(rank):
    """A step of the optimizer changes the whole bias once, however many processes add it."""
    torch.manual_seed(8)
    linear = nn.Linear(32, 24, device=processes.device())
    x, g = (torch.randn(4, size).to(processes.device()) for size in (32, 24))
    for to in (tcgemm.nn.QuantLinear, SparseLinear24):
        for style in (ColwiseParallel, RowwiseParallel):
            model = nn.Sequential(copy.deepcopy(linear))
            tcgemm.swap_linear(model, to=to)
            plan = {"0": style(input_layouts=Replicate())}
            parallelize_module(model, processes.mesh(), plan)
            (bias,) = model.parameters()
            bias.requires_grad_()
            out = model(x)
            out.backward(g if style is RowwiseParallel else g.chunk(2, 1)[rank])
            assert bias.grad.placements == bias.placements
            torch.testing.assert_close(bias.grad.full_tensor(), g.sum(0))
            torch.testing.assert_close(bias.full_tensor(), linear.bias)
