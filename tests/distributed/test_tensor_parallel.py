"""Products of DTensors, and tensor-parallel tcgemm.nn.Linear, in two processes."""

import itertools

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import tcgemm
from tcgemm.ops.dtensor import full_tensor

from support import processes, programs
from support.processes import in_processes
from support.samples import some

M, N, K, BATCH = 7, 5, 9, 3  # two processes have parts of different sizes
R = Replicate()


def integers(*shape):
    """Small integers: every sum is exact, in whichever order the ranks add."""
    return torch.randint(-3, 4, shape).float().to(processes.device())


def place(tensor, devices, *placements):
    """A DTensor; the parts of a Partial one differ."""
    if placements[0] != Partial():
        return distribute_tensor(tensor, devices, placements)
    part = tensor - 1 if devices.get_local_rank(0) == 0 else torch.ones_like(tensor)
    return DTensor.from_local(part, devices, placements)


def gradients_of(model):
    """The whole gradients of the parameters."""
    return [full_tensor(parameter.grad).clone() for parameter in model.parameters()]


class Mlp(nn.Module):
    def __init__(self, bias, activation):
        super().__init__()
        self.up = tcgemm.nn.Linear(K, 12, bias, activation=activation)
        self.down = tcgemm.nn.Linear(12, N, bias)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(integers(*parameter.shape))
        self.to(processes.device())

    def forward(self, x):
        return self.down(self.up(x))


@pytest.mark.parametrize(("bias", "activation"), [(False, None), (True, "relu")])
@in_processes
def test_a_column_and_a_row_parallel_layer(rank, bias, activation):
    x = integers(3, M, K)
    model = Mlp(bias, activation)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    expected = model(inputs[0])
    expected.square().sum().backward()
    gradients = gradients_of(model)
    model.zero_grad()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, processes.mesh(), plan)
    out = model(inputs[1])
    assert torch.equal(out, expected)
    out.square().sum().backward()
    assert torch.equal(inputs[1].grad, inputs[0].grad)
    assert all(map(torch.equal, gradients_of(model), gradients))
    assert model.up.weight.placements == (Shard(0),)
    assert model.down.weight.placements == (Shard(1),)
    with torch.no_grad():
        assert torch.equal(model.eval()(x), expected)


@in_processes
def test_a_row_parallel_layer_with_an_activation(rank):
    """The sum over ranks comes before the activation, also after a call without one."""
    x = integers(M, 10)
    for activation in (None, "relu", None):
        layer = tcgemm.nn.Linear(10, N, device=processes.device(), activation=activation)
        with torch.no_grad():
            layer.weight.copy_(integers(N, 10))
        expected = layer(x)
        parallelize_module(layer, processes.mesh(), RowwiseParallel())
        torch.testing.assert_close(layer(x[:, 5 * rank : 5 * rank + 5]), expected)


CALLS = {
    "mm": ((M, K), (K, N)),
    "bmm": ((BATCH, M, K), (BATCH, K, N)),
    "matmul": ((BATCH, M, K), (K, N)),
    "addmm": ((M, N), (M, K), (K, N)),
    "baddbmm": ((BATCH, M, N), (BATCH, M, K), (BATCH, K, N)),
    "linear": ((BATCH, M, K), (N, K)),
}
OPTIONS = (
    {"bias": (N,), "residual": (M, N), "alpha": 2.0},
    {"bias": (M, 1), "activation": "relu"},
)


def products(rank, name, shape):
    """Every pair of placements of two operands, with gradients."""
    devices = init_device_mesh(processes.device().type, shape)
    tensors = [integers(*shape) for shape in CALLS[name]]
    function = getattr(tcgemm, name)
    placed = [[R, Partial(), *map(Shard, range(tensor.dim()))] for tensor in tensors]
    if name in ("addmm", "baddbmm"):
        placed[0] = [R, Shard(0)]
    rest = [Shard(0)] * (len(shape) - 1)  # of the further dimensions of the mesh
    for options in OPTIONS:
        if name == "linear" and options["bias"] != (N,):  # its bias has one dimension
            options = {**options, "bias": (N,)}
        addends = {key: integers(*value) for key, value in options.items() if type(value) is tuple}
        options = {key: value for key, value in options.items() if type(value) is not tuple}
        leaves = [value.clone().requires_grad_() for value in (*tensors, *addends.values())]
        expected = function(
            *leaves[: len(tensors)],
            **dict(zip(addends, leaves[len(tensors) :], strict=True)),
            **options,
        )
        gradients = torch.autograd.grad(expected.square().sum(), leaves)
        for placements in itertools.product(*placed):
            operands = [
                place(tensor, devices, placement, *rest).requires_grad_()
                for tensor, placement in zip(tensors, placements, strict=True)
            ]
            addend_tensors = [
                place(value, devices, *[R] * len(shape)).requires_grad_()
                for value in addends.values()
            ]
            keywords = dict(zip(addends, addend_tensors, strict=True))
            out = function(*operands, **keywords, **options)
            assert isinstance(out, DTensor) and torch.equal(out.full_tensor(), expected)
            results = torch.autograd.grad(out.square().sum(), [*operands, *addend_tensors])
            for result, exact in zip(results, gradients, strict=True):
                assert torch.equal(result.full_tensor(), exact)


@some("name", CALLS, [name for name in CALLS if name != "baddbmm"])
def test_products_of_dtensors(name, device):
    processes.run(products, name, (2,), device=device)


@some("name", ["mm", "linear"], ["mm"])
def test_products_on_a_mesh_of_two_dimensions(name, device):
    processes.run(products, name, (2, 1), device=device)


@in_processes
def test_results_stay_sharded(rank):
    devices = processes.mesh()
    a, b = integers(M, K), integers(K, N)

    def place(tensor, placement):
        return distribute_tensor(tensor, devices, [placement])

    for of_a, of_b, out in (
        (Shard(0), R, Shard(0)),
        (R, Shard(1), Shard(1)),
        (Shard(1), Shard(0), Partial()),
        (R, R, R),
    ):
        assert tcgemm.mm(place(a, of_a), place(b, of_b)).placements == (out,)
    bias = place(integers(N), R)
    summed = tcgemm.mm(place(a, Shard(1)), place(b, Shard(0)), bias=bias)
    assert summed.placements == (Partial(),)
    eight = tcgemm.mm(place(a, Shard(1)), place(b, Shard(0)), out_dtype=torch.float8_e4m3fn)
    assert eight.placements != (Partial(),)


@in_processes
def test_sequence_parallel(rank):
    """The loss is the sum of the losses of both processes."""
    x = integers(2, 6, K).requires_grad_()
    model = nn.Sequential(nn.LayerNorm(K), tcgemm.nn.Linear(K, 12)).to(x.device)
    expected = model(x)
    expected.square().sum().backward()
    gradients = gradients_of(model)
    model.zero_grad()
    plan = {"0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1))}
    parallelize_module(model, processes.mesh(), plan)
    part = x.detach().chunk(2, 1)[rank].requires_grad_()
    out = model(part)
    torch.testing.assert_close(out, expected.chunk(2, -1)[rank])
    out.square().sum().backward()
    torch.testing.assert_close(part.grad, x.grad.chunk(2, 1)[rank], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradients_of(model), gradients, rtol=1e-4, atol=1e-4)
    x = integers(2, M, K)
    sharded = distribute_tensor(x, processes.mesh(), [Shard(1)])
    weight = distribute_tensor(integers(N, K), processes.mesh(), [R]).requires_grad_()
    tcgemm.linear(sharded, weight).sum().backward()
    exact = x.flatten(0, 1).sum(0).expand(N, K)
    assert torch.equal(weight.grad.full_tensor(), exact)


@in_processes
def test_compiled_tensor_parallel(rank):
    model = Mlp(True, "relu")
    x = integers(3, M, K)
    expected = model(x)
    parallelize_module(
        model, processes.mesh(), {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    model(x).square().sum().backward()
    gradients = gradients_of(model)
    model.zero_grad()
    torch._dynamo.reset()
    function = torch.compile(model, backend="aot_eager")
    assert torch.equal(function(x), expected)
    function(x).square().sum().backward()
    assert all(map(torch.equal, gradients_of(model), gradients))


@pytest.mark.parametrize("first", ["torch.distributed.tensor", "tcgemm"])
def test_rules_come_with_the_import_of_dtensor(first):
    program = f"""
import sys
import {first}
assert "torch.distributed.tensor" not in sys.modules or {first!r} != "tcgemm"
import tcgemm
before = "tcgemm.ops.sharding" in sys.modules
import torch.distributed.tensor
print(before, "tcgemm.ops.sharding" in sys.modules)
"""
    process = programs.run(program)
    assert process.stdout.split() == [str(first != "tcgemm"), "True"], process.stderr
