"""torch.compile(fullgraph=True) of functions and modules, forward and backward, equals eager.

Most run on aot_eager, which traces forward and backward as inductor does but generates no code.
"""

import pytest
import torch
from torch.func import grad, hessian, jvp, vmap

import tcgemm

from support.inductor import inductor
from support.torch_reference import CASES, Case

FULL = Case(
    "addmm", (3, 4), (4, 5), c=(3, 1), bias=(5,), residual=(3, 5), activation="gelu", beta=0.5
)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


def compiled(function, backend="aot_eager", dynamic=False):
    return torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)


def run(function, tensors):
    """The result, and gradients of its sum of sines for every tensor that takes one."""
    tensors = {
        name: t.detach().clone().requires_grad_(t.requires_grad) for name, t in tensors.items()
    }
    out = function(**tensors)
    inputs = [t for t in tensors.values() if t.requires_grad]
    return out.detach(), torch.autograd.grad(out.sin().sum(), inputs) if inputs else ()


def equal(results, expected):
    torch.testing.assert_close(results, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward(case):
    tensors = case.tensors(torch.float32, requires_grad=True)
    equal(run(compiled(case.fused), tensors), run(case.fused, tensors))


@pytest.mark.parametrize("case", [CASES[1], FULL, CASES[19]], ids=str)
def test_without_gradient(case):
    tensors = case.tensors(torch.bfloat16)
    equal(run(compiled(case.fused), tensors), run(case.fused, tensors))


@pytest.mark.parametrize("case", [CASES[3], CASES[9], CASES[19], FULL], ids=str)
def test_dynamic_shapes(case):
    function = compiled(case.fused, dynamic=True)
    for factor in (1, 2, 3):
        tensors = {
            name: torch.cat([t.detach()] * factor, -2) if name == "a" else t.detach()
            for name, t in case.tensors(torch.float32).items()
        }
        for name in ("c", "bias", "residual"):
            if name in tensors and tensors[name].dim() > 1 and tensors[name].shape[-2] > 1:
                tensors[name] = torch.cat([tensors[name]] * factor, -2)
        for t in tensors.values():
            t.requires_grad_()
        equal(run(function, tensors), run(case.fused, tensors))


def test_changing_batch_compiles_twice_at_most():
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    layer = tcgemm.nn.Linear(8, 4, activation="relu")
    function = torch.compile(layer, fullgraph=True, backend=counter)
    for rows in (2, 3, 5, 9):
        function(torch.randn(rows, 8)).sum().backward()
    assert counter.frame_count <= 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_under_autocast(dynamic, device):
    model = torch.nn.Sequential(
        tcgemm.nn.Linear(8, 16, activation="gelu"), tcgemm.nn.Linear(16, 4, bias=False)
    ).to(device)
    x = torch.randn(6, 8, device=device)

    def step(x):
        with torch.autocast(device, dtype=torch.bfloat16):
            return model(x)

    def gradients(step):
        model.zero_grad()
        out = step(x)
        out.float().square().sum().backward()
        return out, [parameter.grad.clone() for parameter in model.parameters()]

    results, expected = gradients(compiled(step, dynamic=dynamic)), gradients(step)
    assert results[0].dtype is torch.bfloat16
    torch.testing.assert_close(results, expected, rtol=2e-2, atol=2e-2)


@inductor
def test_inductor_trains_a_model_as_eager_does():
    torch.manual_seed(0)
    x, y = torch.randn(32, 16), torch.randint(4, (32,))

    def train(compile):
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            *(tcgemm.nn.Linear(16, 32, activation=name) for name in ("relu",)),
            *(tcgemm.nn.Linear(32, 32, activation=name) for name in ("gelu", "silu")),
            tcgemm.nn.Linear(32, 4),
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        forward = compile(model)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    compiled_losses = train(lambda model: compiled(model, backend="inductor"))
    torch.testing.assert_close(compiled_losses, train(lambda model: model), rtol=1e-5, atol=1e-5)


@inductor
def test_inductor_with_dynamic_shapes_and_every_addend():
    function = compiled(FULL.fused, backend="inductor", dynamic=True)
    tensors = FULL.tensors(torch.float32, requires_grad=True)
    equal(run(function, tensors), run(FULL.fused, tensors))


@inductor
def test_inductor_with_scales():
    def function(x, weight):
        x8, scale_x = tcgemm.quantize(x, torch.float8_e4m3fn, "row")
        w8, scale_w = tcgemm.quantize(weight, torch.float8_e4m3fn, "row")
        out, amax = tcgemm.linear(x8, w8, scale_a=scale_x, scale_b=scale_w.t(), amax=True)
        layer = tcgemm.quantized_linear(x, weight, activation="gelu")
        return tcgemm.mm(out.float(), weight, scale_a=amax).relu() + tcgemm.mm(layer, weight)

    tensors = {"x": torch.randn(6, 64), "weight": torch.randn(16, 64, requires_grad=True)}
    equal(run(compiled(function, backend="inductor"), tensors), run(function, tensors))


def test_out():
    a, b, out = torch.randn(3, 4), torch.randn(4, 5), torch.zeros(3, 5)

    def function(a, b, out):
        tcgemm.mm(a, b, activation="relu", out=out)
        return out + 1

    equal(compiled(function)(a, b, out), (a @ b).relu() + 1)
    equal(out, (a @ b).relu())


@pytest.mark.parametrize("case", [CASES[3], CASES[10], FULL], ids=str)
def test_transforms_inside_a_compiled_function(case):
    names = list(case.tensors())

    def scalar(*values):
        return case.fused(**dict(zip(names, values, strict=True))).sin().sum()

    values = tuple(case.tensors().values())
    tangents = tuple(case.tensors(seed=1).values())
    batch = torch.stack([values[0], -values[0]])

    def tangent(*both):
        return jvp(scalar, both[: len(names)], both[len(names) :])

    def per_example(batch, *rest):
        return vmap(grad(scalar), (0, *[None] * len(rest)))(batch, *rest)

    equal(compiled(grad(scalar, 1))(*values), grad(scalar, 1)(*values))
    equal(compiled(tangent)(*values, *tangents), tangent(*values, *tangents))
    equal(compiled(per_example)(batch, *values[1:]), per_example(batch, *values[1:]))


def test_hessian_inside_a_compiled_function():
    def scalar(a, b):
        return tcgemm.mm(a, b, activation="silu").sum()

    a, b = torch.randn(2, 3, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    equal(compiled(hessian(scalar))(a, b), hessian(scalar)(a, b))


def test_gradient_through_a_compiled_vmap():
    a, b = torch.randn(4, 3, 5, requires_grad=True), torch.randn(5, 2, requires_grad=True)

    def function(a, b):
        return vmap(lambda x: tcgemm.mm(x, b, activation="gelu"))(a)

    grads = torch.autograd.grad(compiled(function)(a, b).sum(), (a, b))
    equal(grads, torch.autograd.grad(function(a, b).sum(), (a, b)))


def test_export():
    model = torch.nn.Sequential(tcgemm.nn.Linear(8, 16, activation="gelu"), tcgemm.nn.Linear(16, 4))
    x = torch.randn(6, 8)
    rows = torch.export.Dim("rows", min=2, max=1024)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: rows},))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets == ["tcgemm.linear.default"] * 2
    for rows in (6, 9):
        x = torch.randn(rows, 8)
        equal(program.module()(x), model(x))


def test_wrong_operands_are_refused_while_tracing():
    a, b = torch.randn(3, 4), torch.randn(5, 6)
    with pytest.raises(RuntimeError, match=r"a of shape \(3, 4\) and b of shape \(5, 6\) cannot"):
        compiled(tcgemm.mm)(a, b)
    with pytest.raises(RuntimeError, match=r'precision is "fast", but for torch.float32 there are'):
        compiled(tcgemm.mm)(a, a.t(), precision="fast")
