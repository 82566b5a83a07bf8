"""tcgemm.nn.SparseLinear24 under DistributedDataParallel and fully_shard, in two processes."""

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import tcgemm
from tcgemm.nn import SparseLinear24
from tcgemm.ops.dtensor import full_tensor

from support import processes, sharding
from support.processes import in_processes
from support.sharding import shard

STEPS = 6


def model_of(seed=0, **options):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 36), nn.ReLU(), nn.Linear(36, 21))
    tcgemm.swap_linear(model, to=SparseLinear24, **options)
    return model.to(processes.device())


def ones():
    return torch.ones(3, 16, device=processes.device())


def losses_of(model, steps=STEPS):
    """Every process sees the same batch, so that the curves are as in one process."""
    torch.manual_seed(1)
    x, target = (torch.randn(24, size).to(processes.device()) for size in (16, 21))
    return sharding.losses_of(model, x, target, steps)[0]


OPTIONS = {"learns": True, "refresh_every": 2, "gradient": "straight_through"}


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@in_processes
def test_training_is_that_of_one_process(rank, kind):
    if kind == "ddp":  # which sends the weights and the kept positions of the first process
        model = DistributedDataParallel(model_of(rank, **OPTIONS))
        layers = model.module
    else:
        model = layers = sharded(0, processes.mesh())
    reference = model_of(**OPTIONS)
    expected = losses_of(reference)
    torch.testing.assert_close(losses_of(model), expected, rtol=1e-5, atol=1e-6)
    assert layers[0]._changes == layers[2]._changes == reference[0]._changes == STEPS - 1


def forward_of_frozen(rank):
    model = DistributedDataParallel(model_of(rank, learns=False, method="magnitude"))
    x = ones()
    loss = model(x).sum()
    loss.backward()
    with torch.no_grad():
        return [model.eval()(x) for _ in range(2)], model.module.state_dict()


def test_ddp_sends_a_frozen_weight(device):
    (results, state), (other_results, their_state) = processes.run(forward_of_frozen, device=device)
    assert torch.equal(results[0], other_results[0]) and torch.equal(results[1], results[0])
    expected = model_of(0, learns=False)
    assert state.keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert torch.equal(state[name], tensor) and torch.equal(their_state[name], tensor)
    near = 0 if device == "cpu" else 1e-2  # this process computes on the CPU
    torch.testing.assert_close(results[0], expected.eval()(ones()).detach(), rtol=near, atol=near)


def sharded(seed, mesh):
    return shard(model_of(seed, **OPTIONS), mesh=mesh)


def save_and_load(rank, folder):
    mesh = processes.mesh()
    model, twin, third = (sharded(seed, mesh) for seed in (0, 5, 6))
    x = ones()
    losses_of(model, 3)
    state = model.state_dict()
    assert isinstance(state["0.weight.values"], DTensor)
    twin.load_state_dict(state)
    checkpoint.save(state, checkpoint_id=folder)
    content = third.state_dict()
    checkpoint.load(content, checkpoint_id=folder)
    third.load_state_dict(content)
    results = [item.eval()(x).detach() for item in (model, twin, third)]
    model[0].refresh()
    full = {name: full_tensor(item).clone() for name, item in state.items()}
    return results, full, model[0].kept.to_dense()


def test_the_state_of_a_sharded_model(device, tmp_path):
    outputs = processes.run(save_and_load, tmp_path, device=device)
    (results, full, positions), (other_results, _, other_positions) = outputs
    for value in (*results, *other_results):
        assert torch.equal(value, results[0])
    assert torch.equal(positions, other_positions)
    model = model_of(7, **OPTIONS)
    assert full.keys() == model.state_dict().keys()
    model.load_state_dict(full)
    near = {"rtol": 1e-2, "atol": 1e-2} if device == "cuda" else {}
    torch.testing.assert_close(model.eval()(ones()), results[0], **near)
    reloaded = model.state_dict()
    for name, value in full.items():
        assert torch.equal(reloaded[name], value)


@in_processes
def test_a_forward_that_no_hook_has_gathered_the_weight_for(rank):
    model = sharded(0, processes.mesh())
    with pytest.raises(RuntimeError, match=r"SparseLinear24: the weight is a DTensor, but"):
        SparseLinear24.forward(model[0], ones())


@in_processes
def test_eval_mode_sees_the_weights_of_the_last_step(rank):
    model = sharded(0, processes.mesh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(24, 16).to(processes.device())
    for _ in range(3):
        with torch.no_grad():
            before = [model.eval()(x) for _ in range(2)]
        assert torch.equal(*before)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            assert not torch.equal(model(x), before[0])


@in_processes
def test_a_model_of_the_cpu_that_fully_shard_moves(rank):
    """fully_shard moves the buffers of a model that was made on the CPU by tensor.data."""
    for options in ({"learns": False}, OPTIONS):
        model = shard(model_of(**options).cpu(), mesh=processes.mesh())
        expected = model_of(**options)
        torch.testing.assert_close(model.eval()(ones()), expected.eval()(ones()))
        assert model[0].compressed.device == processes.device()
