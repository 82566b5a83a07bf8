"""torch's features around a product work in a tcgemm.use: derivatives, transforms, fakes, modes."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap

import tcgemm

from support.uses import by_torch, integers


def derivatives(x, w, bias):
    y = F.linear(x, w, bias).sin().sum()
    first = torch.autograd.grad(y, (x, w, bias), create_graph=True)
    second = torch.autograd.grad(sum((g * g).sum() for g in first), (x, w, bias))
    return (*first, *second)


def test_derivatives_of_two_orders():
    tensors = [torch.randn(*shape, dtype=torch.float64) for shape in ((3, 5), (4, 5), (4,))]
    tensors = [tensor.requires_grad_() for tensor in tensors]
    expected = by_torch(derivatives, *tensors)
    with tcgemm.use() as u:
        result = derivatives(*tensors)
        assert torch.autograd.gradcheck(F.linear, tensors)
        assert torch.autograd.gradgradcheck(F.linear, tensors)
    assert all(map(torch.allclose, result, expected)) and u.report().left == 0


TRANSFORMS = {
    "vmap": lambda x, w: vmap(torch.mm, in_dims=(0, None))(torch.stack([x, 2 * x]), w.t()),
    "vmap both": lambda x, w: vmap(torch.mm)(torch.stack([x, x]), torch.stack([w.t(), w.t()])),
    "vmap addmm": lambda x, w: vmap(lambda y: torch.addmm(y[0, :4], y, w.t()))(
        torch.stack([x, 2 * x])
    ),
    "grad": lambda x, w: grad(lambda v: (x @ v.t()).sin().sum())(w),
    "jvp": lambda x, w: jvp(lambda v: x @ v.t(), (w,), (w,))[1],
    "jacrev": lambda x, w: jacrev(lambda v: x @ v.t())(w),
    "hessian": lambda x, w: hessian(lambda v: (x @ v.t()).sin().sum())(w),
    "per sample": lambda x, w: vmap(grad(lambda v, y: (v @ y).sin().sum()), (None, 0))(w, x),
    "functional_call": lambda x, w: functional_call(
        torch.nn.Linear(5, 4, bias=False).double(), {"weight": w}, (x,)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    x, w = torch.randn(3, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    expected = by_torch(TRANSFORMS[name], x, w)
    with tcgemm.use() as u:
        result = TRANSFORMS[name](x, w)
    assert torch.allclose(result, expected) and u.report().left == 0


def test_autocast():
    layer, x = torch.nn.Linear(8, 6), torch.randn(4, 8)
    with tcgemm.use() as u, torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        y.float().sum().backward()
    assert y.dtype is torch.bfloat16 and layer.weight.grad.dtype is torch.float32
    assert {row.dtype for row in u.report().rows} == {"bf16"} and u.report().left == 0


def test_inference_mode_and_no_grad():
    layer, x = torch.nn.Linear(8, 6), torch.randn(4, 8)
    with tcgemm.use() as u:
        for context in (torch.no_grad(), torch.inference_mode()):
            with context:
                assert not layer(x).requires_grad
        with torch.inference_mode():
            inside = layer(torch.randn(4, 8))
            torch.mm(inside, inside.t(), out=torch.empty(4, 4))
    assert u.report().taken == 4


def test_out_of_a_tensor_that_needs_a_gradient_is_torchs_error():
    x = torch.randn(4, 4, requires_grad=True)
    with tcgemm.use(), pytest.raises(RuntimeError, match="don't support automatic diff"):
        torch.mm(x, x, out=torch.empty(4, 4))


def test_a_changed_operand_is_noticed_by_the_backward():
    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 6)
    with tcgemm.use():
        y = torch.mm(x, w)
        w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_fake_and_meta_tensors_are_not_counted():
    with tcgemm.use() as u:
        with torch._subclasses.FakeTensorMode():
            assert torch.mm(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
        meta = torch.ones(3, 3, device="meta")
        assert torch.mm(meta, meta).device.type == "meta"
    assert u.report().rows == []


class Head(torch.nn.Module):
    """A linear layer with torch's functions."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 6)

    def forward(self, x):
        return self.layer(x) @ torch.ones(6, 3)


def test_export_traces_torchs_functions():
    model, x = Head().eval(), integers(4, 8)
    with tcgemm.use():
        program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("b")},))
        traced = torch.jit.trace(model, (x,))
    targets = {str(node.target) for node in program.graph.nodes}
    assert not any("tcgemm" in target for target in targets)
    expected = model(x)
    with tcgemm.use() as u:
        for run in (program.module(), traced):
            assert torch.allclose(run(x), expected, atol=1e-5)
        assert torch.allclose(program.module()(x[:3]), expected[:3], atol=1e-5)
    assert u.report().taken == 6


def test_deterministic_mode():
    a, b = torch.randn(33, 65), torch.randn(65, 17)
    torch.use_deterministic_algorithms(True)
    try:
        with tcgemm.use() as u:
            first, second = torch.mm(a, b), torch.mm(a, b)
            filled = torch.mm(a, b, out=torch.empty(33, 17))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first, second) and torch.equal(first, filled)
    assert u.report().taken == 3


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
def test_float32_on_the_cpu_has_all_bits(setting):
    a, b = torch.randn(8, 64), torch.randn(64, 8)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        with tcgemm.use():
            assert torch.equal(torch.mm(a, b), tcgemm.mm(a, b, precision="highest"))
    finally:
        torch.set_float32_matmul_precision(before)


def test_checkpoint_hooks_and_profiler():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    x = torch.randn(4, 8, requires_grad=True)
    with tcgemm.use() as u:
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
        with torch.autograd.graph.save_on_cpu():
            layer(x).sum().backward()
        with torch.profiler.profile() as profile:
            layer(x)
    assert u.report().left == 0 and u.report().taken > 10
    assert "aten::addmm" in {event.key for event in profile.key_averages()}


def test_backend_aot_eager():
    layer, x = torch.nn.Linear(8, 6), torch.randn(4, 8)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with tcgemm.use() as u:
        compiled(x).sum().backward()
    assert u.report().taken == 2 and u.report().left == 0
    compiled(x)
    assert u.report().taken == 2


def test_what_torch_compile_leaves_to_the_interpreter():
    """Dynamo looks at every Python frame that such code reaches, but at none of the kernels."""

    @torch._dynamo.disable(recursive=False)
    def eager(x):
        return torch.mm(x, x, out=torch.empty(2, 2)) + torch.mm(x, x)

    def function(x):
        torch._dynamo.graph_break()
        with tcgemm.use() as inner:
            y = eager(x)
        return y + 1, inner

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result, inner = torch.compile(function, backend="eager")(torch.ones(2, 2))
    assert torch.equal(result, torch.full((2, 2), 5.0))
    assert inner.report().taken == 2 and not inner.active
