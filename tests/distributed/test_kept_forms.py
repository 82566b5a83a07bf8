"""Kept forms of weights under collectives, DistributedDataParallel and fully_shard (FSDP2)."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tcgemm
from tcgemm.nn import Linear, PackedLinear, SparseLinear24
from tcgemm.operands.packed import arrange
from tcgemm.ops.dtensor import full_tensor

from support import processes
from support.processes import in_processes
from support.sharding import shard

K, N = 128, 32


def x():
    torch.manual_seed(9)
    return torch.randn(3, K, device=processes.device()).bfloat16()


def make(name, seed):
    torch.manual_seed(seed)
    linear = nn.Linear(K, N).bfloat16().to(processes.device())
    if name == "bf16":
        return linear
    if name == "int4":
        return PackedLinear.from_linear(linear)
    return SparseLinear24.from_linear(linear, learns=True).eval()


def weights_of(layer):
    if isinstance(layer, PackedLinear):
        return [buffer for buffer in layer._buffers.values() if buffer is not None]
    return [layer.weight.detach()]


@pytest.mark.parametrize("name", ["int4", "2:4 learns"])
@in_processes
def test_a_broadcast_in_place_is_seen_after_a_refresh(rank, name):
    """Collectives write past torch's counter."""
    layer = make(name, rank)
    with torch.no_grad():
        layer.bias.zero_()
        mine = layer(x())
        theirs = make(name, 0)
        theirs.bias.zero_()
        if name != "int4":
            theirs._set(layer.kept.clone())
        for tensor in weights_of(layer):
            torch.distributed.broadcast(tensor, 0)
        assert torch.equal(layer(x()), mine)
        report = tcgemm.refresh_weights(layer)
        assert torch.equal(layer(x()), theirs(x())) and len(report.refreshed) == 1


@in_processes
def test_ddp_makes_each_order_once(rank):
    """It writes the buffers of process 0 into all before each forward; mostly the same bytes."""
    model = nn.Sequential(nn.Linear(K, K), make("int4", 0)).bfloat16().to(processes.device())
    model = DistributedDataParallel(model)
    calls, real = [], arrange.arranged
    arrange.arranged = lambda *arguments: calls.append(arguments) or real(*arguments)
    try:
        for _ in range(4):
            model(x()).sum().backward()
    finally:
        arrange.arranged = real
    assert len(calls) == 1


@in_processes
def test_fully_shard_writes_kept_elements_in_eval_mode_alone(rank):
    layer = make("2:4 learns", 0)
    expected = copy.deepcopy(layer)
    shard(layer, mesh=processes.mesh())
    writes = []
    form = layer._kept_form()
    real = form._write
    form._write = lambda *arguments: writes.append(arguments) or real(*arguments)
    for module in (layer, expected):
        optimizer = torch.optim.SGD(module.parameters(), 0.5)
        for step in range(3):
            module.train()(x()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if module is layer:
                assert len(writes) == step
            with torch.no_grad():
                module.eval()(x())
    with torch.no_grad():
        assert processes.same(layer(x()), expected(x()))


@in_processes
def test_a_sharded_state_has_no_element_that_the_layer_leaves_out(rank):
    """Where a transposable weight had zeros, its transpose may have no position for an element."""
    torch.manual_seed(0)
    linear = nn.Linear(K, N).bfloat16().to(processes.device())
    linear.weight.data[:, ::3] = 0
    linear.weight.data[:8] = 0
    layer = SparseLinear24.from_linear(linear, learns=True, method="transposable")
    layer.weight.data.normal_()
    expected = copy.deepcopy(layer).eval()
    shard(layer, mesh=processes.mesh())
    state = {name: full_tensor(tensor) for name, tensor in layer.state_dict().items()}
    other = copy.deepcopy(expected)
    other.load_state_dict(state)
    assert torch.equal(state["weight.values"], expected.state_dict()["weight.values"])
    with torch.no_grad():
        assert processes.same(other(x()), expected(x()))


@in_processes
def test_a_sharded_weight_is_loaded_after_the_wait(rank):
    """Before each forward FSDP2 gathers the weight, past torch's counter."""
    layer = Linear.from_linear(make("bf16", 0), constant_weights=True)
    expected = layer(x())
    assert layer._is_constant()
    shard(layer, mesh=processes.mesh())
    calls, real = [], layer._is_constant
    layer._is_constant = lambda: calls.append(real()) or calls[-1]
    for _ in range(3):
        assert processes.same(layer(x()), expected)
    assert calls == [False] * 3
