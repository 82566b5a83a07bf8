"""SequenceParallel of every layer: two processes have the whole layer, and a part of the rows."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module

import tcgemm
from tcgemm.integrations.tensor_parallel import ColwiseParallel, SequenceParallel
from tcgemm.nn import QuantLinear, SparseLinear24
from tcgemm.ops.dtensor import full_tensor

from support import processes
from support.error_asserts import refusal
from support.processes import in_processes
from support.sharding import LAYERS, assert_compiled_is_eager

OURS = [kind for kind, options in LAYERS.items() if options["to"] in (QuantLinear, SparseLinear24)]
TOKENS, K, N = 6, 64, 48
NAME = "tcgemm.integrations.tensor_parallel.SequenceParallel"
every_kind = pytest.mark.parametrize("kind", LAYERS)
each_of_ours = pytest.mark.parametrize("kind", OURS)


def layer_of(kind, seed=3, bias=True):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(K, N, bias))
    tcgemm.swap_linear(model, **LAYERS[kind])
    return model.requires_grad_().to(processes.device())


def batch():
    torch.manual_seed(4)
    return [torch.randn(2, TOKENS, size).to(processes.device()) for size in (K, N)]


def parallel(model, **options):
    return parallelize_module(model, processes.mesh(), {"0": SequenceParallel(**options)})


def assert_near(kind, result, exact):
    """A part of x has a scale of its own in Float8Linear, and other sums elsewhere."""
    bound = 0.1 if kind == "float8" else 1e-2 if result.is_cuda else 1e-5
    assert (result - exact).norm() <= bound * exact.norm()


@pytest.mark.parametrize("bias", [True, False])
@every_kind
@in_processes
def test_results_and_gradients_are_those_of_one_process(rank, kind, bias):
    reference = layer_of(kind, bias=bias)
    model = parallel(copy.deepcopy(reference))
    x, g = batch()
    rows = slice(3 * rank, 3 * rank + 3)
    part = x[:, rows].clone().requires_grad_()
    x.requires_grad_()
    expected = reference(x)
    expected.backward(g)
    out = model(part)
    assert out.placements == (Shard(1),) and out.shape == expected.shape
    out.backward(distribute_tensor(g, processes.mesh(), [Shard(1)]))
    if kind != "float8":
        assert processes.same(out.to_local(), expected[:, rows])
        assert processes.same(part.grad, x.grad[:, rows])
    assert_near(kind, out.full_tensor(), expected)
    assert_near(kind, part.grad, x.grad[:, rows])
    for parameter, exact in zip(model.parameters(), reference.parameters(), strict=True):
        if not exact.numel():
            continue  # the placeholder of a QuantLinear without a bias
        assert isinstance(parameter, DTensor)
        assert_near(kind, parameter.grad.full_tensor(), exact.grad)
        if kind in (*OURS, "float8"):  # as clip_grad_norm_ expects them
            assert parameter.grad.placements == (Replicate(),)


def trained(model, x, target, steps=4):
    """The losses, which are means over all processes, and the clipped norms."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(steps):
        loss = (model(x) - target).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad()
        losses += [float(full_tensor(value)) for value in (loss, norm)]
    return losses


@each_of_ours
@in_processes
def test_training_and_the_state(rank, kind):
    """The tensors of process 0 count, and the clipped steps are as in one process."""
    reference, model = layer_of(kind), parallel(layer_of(kind, 3 + rank))
    x, target = batch()
    placed = [distribute_tensor(tensor, processes.mesh(), [Shard(1)]) for tensor in (x, target)]
    expected, losses = trained(reference, x, target), trained(model, *placed)
    assert expected[-2] < expected[0]
    near = 1e-2 if x.is_cuda else 1e-4
    torch.testing.assert_close(losses, expected, rtol=near, atol=0)
    out = model.eval()(placed[0])
    torch.testing.assert_close(out.full_tensor(), reference.eval()(x), rtol=near, atol=near)
    state = model.state_dict()
    for name, exact in reference.state_dict().items():
        assert state[name].placements == (Replicate(),)
        tensor_of_model, exact = state[name].to_local().cpu().float(), exact.cpu().float()
        torch.testing.assert_close(tensor_of_model, exact, rtol=near, atol=near)
    twin = parallel(layer_of(kind, 9)).eval()
    twin.load_state_dict(reference.state_dict())
    assert processes.same(twin(placed[0]).full_tensor(), reference(x))
    twin.load_state_dict(state)
    assert torch.equal(twin(placed[0]).full_tensor(), out.full_tensor())


@each_of_ours
@in_processes
def test_placements_of_the_input(rank, kind):
    """x may be a DTensor of any placement, and the sequence any dimension but the last one."""
    reference, (x, _) = layer_of(kind), batch()
    expected = reference(x)
    mesh = processes.mesh()
    for dim, placement in ((0, Shard(2)), (-2, Replicate())):
        model = parallel(copy.deepcopy(reference), sequence_dim=dim, use_local_output=True)
        out = model(distribute_tensor(x, mesh, [placement]))
        assert type(out) is torch.Tensor and processes.same(out, expected.chunk(2, dim)[rank])
    model = parallel(copy.deepcopy(reference), sequence_dim=0)
    out = model(x.flatten(0, 1)[TOKENS * rank : TOKENS * rank + TOKENS])
    assert processes.same(out.full_tensor(), expected.flatten(0, 1))


@every_kind
@in_processes
def test_compiled(rank, kind):
    def make():
        return parallel(layer_of(kind), use_local_output=True)

    assert_compiled_is_eager(make, batch()[0].chunk(2, 1)[rank], kind == "learns")


@in_processes
def test_before_a_column_parallel_layer(rank):
    """The plan of a block: its first layer has parts of the sequence, the second one all of it."""
    x, _ = batch()
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(K, K), nn.Linear(K, N)).to(x.device)
    tcgemm.swap_linear(model, to=QuantLinear, dtype=torch.int8)
    expected = model(x)
    plan = {"0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1))}
    parallelize_module(model, processes.mesh(), plan)
    out = model(x.chunk(2, 1)[rank])
    assert processes.same(out, expected.chunk(2, 2)[rank])


@in_processes
def test_what_is_refused(rank):
    x, _ = batch()
    mesh = processes.mesh()

    grid = init_device_mesh(mesh.device_type, (2, 1))
    for layer in (QuantLinear(K, N), nn.LayerNorm(K)):
        message = refusal(lambda layer=layer: parallelize_module(layer, grid, SequenceParallel()))
        assert message == (
            f"{NAME}: the mesh is {grid}, but it must have one dimension; pass such a part of it "
            'as mesh["model"].'
        )
        assert not isinstance(next(layer.parameters()), DTensor)
    model = parallel(layer_of("int8"))
    assert refusal(lambda: model(x[0])) == (
        f"{NAME}: sequence_dim is 1, but x has the shape (6, 64), and its last dimension has the "
        "features; pass another sequence_dim."
    )
    odd = distribute_tensor(x[:, :5], mesh, [Shard(1)])
    assert refusal(lambda: model(odd)) == (
        f"{NAME}: x has the shape (2, 5, 64), but 2 processes do not divide dimension 1; pad x."
    )
