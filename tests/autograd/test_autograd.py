"""Gradients in eager mode: every operator and epilogue against torch's expression, in float64."""

import pytest
import torch
from torch.autograd import forward_ad

import tcgemm
from tcgemm.ops.operators import PLAIN

from support import cases
from support.calls import Recorder
from support.dtype_matrix import DEVICE_DTYPES
from support.torch_reference import CASES, Case

FULL = Case(
    "addmm", (3, 4), (4, 5), c=(3, 1), bias=(5,), residual=(3, 5), activation="gelu", beta=0.5
)


def gradients(function, tensors, seed=1):
    out = function(**tensors)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to(out)
    return out, torch.autograd.grad(out, list(tensors.values()), grad)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_first_and_second_derivatives_pass_gradcheck(case):
    tensors = case.tensors(requires_grad=True)
    names = list(tensors)

    def function(*values):
        return case.fused(**dict(zip(names, values, strict=True)))

    values = tuple(tensors.values())
    batched = 0 not in case.a  # torch's own batched check does not take empty results
    assert torch.autograd.gradcheck(
        function,
        values,
        check_forward_ad=True,
        check_batched_grad=batched,
        check_batched_forward_grad=batched,
    )
    assert torch.autograd.gradgradcheck(function, values, check_fwd_over_rev=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_equal_those_of_the_expression(case):
    tensors = case.tensors(requires_grad=True)
    out, grads = gradients(case.fused, tensors)
    expected_out, expected = gradients(case.composed, tensors)
    torch.testing.assert_close(out, expected_out, rtol=1e-12, atol=1e-12)
    for name, g, e in zip(tensors, grads, expected, strict=True):
        assert g.shape == tensors[name].shape
        torch.testing.assert_close(g, e, rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("seed", range(20))
def test_random_calls(seed):
    generator = torch.Generator().manual_seed(seed)

    def pick(*choices):
        return choices[torch.randint(len(choices), (), generator=generator)]

    m, n, k = pick(1, 2, 7), pick(1, 3, 8), pick(0, 1, 5)
    batch_a, batch_b, batch = pick(
        ((), (), ()), ((2,), (), (2,)), ((), (3,), (3,)), ((2, 1), (3,), (2, 3)), ((1,), (2,), (2,))
    )
    case = Case(
        "matmul",
        (*batch_a, m, k),
        (*batch_b, k, n),
        bias=pick(None, (n,), (1, n), (m, 1)),
        residual=pick(None, (n,), (m, 1), (*batch, m, n), ()),
        activation=pick(None, *cases.ACTIVATIONS),
        alpha=pick(1.0, -0.5),
    )
    tensors = case.tensors(requires_grad=True, seed=seed)
    for result, expected in zip(
        gradients(case.fused, tensors)[1], gradients(case.composed, tensors)[1], strict=True
    ):
        torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_product_in_forward_and_backward_is_ours(case):
    tensors = case.tensors(requires_grad=True)
    with Recorder() as recorder:
        out = case.fused(**tensors)
        inputs = list(tensors.values())
        first = torch.autograd.grad(out.sum(), inputs, create_graph=True)
        second = [g.square().sum() for g in first if g.requires_grad]
        if second:
            torch.autograd.grad(second, inputs, allow_unused=True)
    functions = (*(op.name for op in PLAIN), "mv", "dot", "einsum")
    products = [name for name in recorder.rows if name.split(".")[1] in functions]
    assert products
    foreign = [name for name in products if not name.startswith("tcgemm.")]
    assert not foreign


@pytest.mark.parametrize(("device", "dtype"), DEVICE_DTYPES)
@pytest.mark.parametrize("case", [*CASES[1:4], *CASES[9:15], *CASES[18:], FULL], ids=str)
def test_each_gradient_has_its_inputs_dtype(case, device, dtype):
    tensors = case.tensors(dtype, requires_grad=True, device=device)
    for name, other in (("c", torch.float32), ("bias", torch.bfloat16), ("residual", torch.half)):
        if name in tensors:
            tensors[name] = tensors[name].detach().to(other).requires_grad_()
    wide = {name: t.detach().double().requires_grad_() for name, t in tensors.items()}
    out_dtype = torch.float64 if dtype is torch.float64 else torch.float32
    _, grads = gradients(lambda **t: case.fused(**t, out_dtype=out_dtype), tensors)
    _, expected = gradients(case.composed, wide)
    for tensor, g, e in zip(tensors.values(), grads, expected, strict=True):
        assert g.dtype == tensor.dtype
        tolerance = 16 * torch.finfo(min(dtype, g.dtype, key=lambda t: -torch.finfo(t).eps)).eps
        torch.testing.assert_close(g.double(), e, rtol=tolerance, atol=tolerance)


def exact(terms, shape):
    """float16 or bfloat16 terms summed to a shape in float64."""
    return terms.detach().double().sum_to_size(shape)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["c", "bias", "residual"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_float32_addend_of_a_16_bit_result_has_a_float32_gradient(dtype, name, compiled, device):
    """A sum of 4096 rows that is rounded to 16 bits is off by 2e-3 of itself."""
    m, n, k = 4096, 16, 8
    a, b = torch.randn(m, k).to(device, dtype), torch.randn(k, n).to(device, dtype)
    addend = torch.randn(n, device=device, requires_grad=True)
    terms = {"c": torch.zeros(n, device=device)} | {name: addend}
    beta = 0.3 if name == "c" else 1.0
    grad = torch.rand(m, n).to(device, dtype)

    def product(a, b, c, **addends):
        return tcgemm.addmm(c, a, b, beta=beta, activation="relu", **addends)

    if compiled:
        product = torch.compile(product, backend="aot_eager", fullgraph=True)
    out = product(a, b, **terms)
    (addend_grad,) = torch.autograd.grad(out, addend, grad)
    assert out.dtype is dtype and addend_grad.dtype is torch.float32
    masked = grad if name == "residual" else grad * (out > 0)
    expected = beta * exact(masked, n)
    torch.testing.assert_close(addend_grad.double(), expected, rtol=1e-6, atol=1e-6)


def test_the_sum_of_a_large_gradient_copies_nothing():
    a, b = torch.randn(64, 8).bfloat16(), torch.randn(8, 16).bfloat16()
    bias = torch.zeros(16, requires_grad=True)
    out = tcgemm.mm(a, b, bias=bias)
    grad = torch.ones_like(out)
    with Recorder() as recorder:
        torch.autograd.grad(out, bias, grad)
    assert not [name for name in recorder.rows if "aten" in name and "view" not in name]
    assert recorder.rows.count("tcgemm._sum_rows.default") == 1


def test_the_float32_sum_has_second_derivatives():
    a = torch.randn(64, 8, dtype=torch.bfloat16, requires_grad=True)
    b, bias = torch.randn(8, 16).bfloat16(), torch.randn(16, requires_grad=True)

    def gradients_of_bias(a, b, bias, product):
        (first,) = torch.autograd.grad(product(a, b, bias).sum(), bias, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), (a, bias))

    grads = gradients_of_bias(
        a, b, bias, lambda a, b, bias: tcgemm.mm(a, b, bias=bias, activation="silu")
    )
    wide = [tensor.detach().double().requires_grad_() for tensor in (a, b, bias)]
    expected = gradients_of_bias(*wide, lambda a, b, bias: torch.nn.functional.silu(a @ b + bias))
    assert [tensor.dtype for tensor in grads] == [torch.float32, torch.bfloat16, torch.float32]
    for g, e in zip(grads, expected, strict=True):
        assert float((g.double() - e).detach().norm() / e.detach().norm()) < 1e-2


def test_a_small_factor_of_a_sum_that_overflows_float16():
    a, b = torch.ones(4096, 1).half(), torch.ones(1, 4).half()
    c = torch.zeros(4).half().requires_grad_()
    (gradient,) = torch.autograd.grad(
        tcgemm.addmm(c, a, b, beta=0.001), c, torch.full((4096, 4), 100.0).half()
    )
    torch.testing.assert_close(gradient, torch.full((4,), 409.6).half())


def test_half_accumulator_has_full_precision_gradients():
    a, b = (torch.randn(size, dtype=torch.half, requires_grad=True) for size in ((8, 64), (64, 8)))
    out = tcgemm.mm(a, b, acc_dtype=torch.float16, activation="gelu")
    grads = torch.autograd.grad(out.sum(), (a, b))
    expected = torch.autograd.grad(torch.nn.functional.gelu(a.float() @ b.float()).sum(), (a, b))
    for g, e in zip(grads, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("needs", ["a", "b", "c", "bias", "residual"])
def test_gradient_of_one_input_alone(needs):
    tensors = FULL.tensors()
    tensors[needs].requires_grad_()
    (gradient,) = torch.autograd.grad(FULL.fused(**tensors).sum(), tensors[needs])
    (expected,) = torch.autograd.grad(FULL.composed(**tensors).sum(), tensors[needs])
    torch.testing.assert_close(gradient, expected)


def saved(function):
    shapes = []

    def pack(tensor):
        shapes.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return sorted(shapes)


def test_only_what_backward_needs_is_saved():
    a, b, bias = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5)
    leaf = [t.clone().requires_grad_() for t in (a, b, bias)]
    assert saved(lambda: tcgemm.mm(a, leaf[1])) == [(3, 4)]
    assert saved(lambda: tcgemm.mm(leaf[0], b)) == [(4, 5)]
    assert saved(lambda: tcgemm.mm(a, b, bias=leaf[2])) == []
    assert saved(lambda: tcgemm.mm(a, b, residual=torch.ones(5, requires_grad=True))) == []
    # The sign of the result serves relu; other activations keep their argument.
    assert saved(lambda: tcgemm.mm(a, b, bias=leaf[2], activation="relu")) == [(3, 5)]
    assert saved(lambda: tcgemm.mm(a, b, bias=leaf[2], activation="gelu")) == [(3, 5)]


def test_weight_gradient_is_laid_out_as_the_weight():
    x = torch.randn(2, 6, 4, requires_grad=True)
    weight = torch.randn(5, 4, requires_grad=True)
    with Recorder() as recorder:
        tcgemm.linear(x, weight).sum().backward()
    assert weight.grad.is_contiguous() and x.grad.is_contiguous()
    # The sum over the batch is part of one product, and nothing is copied around it.
    assert recorder.rows.count("tcgemm.matmul.default") == 2
    assert not any("clone" in name or "copy" in name for name in recorder.rows)
    columns = torch.randn(5, 4).t().detach().requires_grad_()
    tcgemm.mm(torch.randn(3, 4), columns).sum().backward()
    assert columns.grad.stride() == columns.stride()


def test_views_and_expanded_operands():
    base = torch.randn(9, 8, dtype=torch.float64, requires_grad=True)
    row = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    grads = torch.autograd.grad(
        tcgemm.mm(base[1:7:2, ::2], row.expand(4, 3), activation="silu").sum(), (base, row)
    )
    z = base[1:7:2, ::2] @ row.expand(4, 3)
    expected = torch.autograd.grad(torch.nn.functional.silu(z).sum(), (base, row))
    torch.testing.assert_close(grads, expected)


def test_one_tensor_in_every_place():
    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    case = Case("addmm", (4, 4), (4, 4), c=(4, 4), residual=(4, 4), activation="gelu")
    gradient = torch.autograd.grad(case.fused(x, x, c=x, residual=x).sum(), x)
    expected = torch.autograd.grad(case.composed(x, x, c=x, residual=x).sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_beta_zero_reads_no_c():
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    c = torch.full((5,), float("nan"), requires_grad=True)
    ga, gc = torch.autograd.grad(tcgemm.addmm(c, a, b, beta=0.0, activation="silu").sum(), (a, c))
    assert ga.isfinite().all() and torch.equal(gc, torch.zeros(5))


def test_forward_mode_of_a_dual_number():
    tensors = FULL.tensors()
    tangents = FULL.tensors(seed=1)
    with forward_ad.dual_level():
        duals = {n: forward_ad.make_dual(t, tangents[n]) for n, t in tensors.items()}
        tangent = forward_ad.unpack_dual(FULL.fused(**duals)).tangent
        expected = forward_ad.unpack_dual(FULL.composed(**duals)).tangent
        assert forward_ad.unpack_dual(FULL.fused(**tensors)).tangent is None
    torch.testing.assert_close(tangent, expected)


def test_the_operators_themselves_are_differentiable():
    """Also without the Python functions: torch.ops is what a traced graph calls."""
    tensors = FULL.tensors(requires_grad=True)
    a, b, c, bias, residual = tensors.values()
    out = torch.ops.tcgemm.addmm(c, a, b, bias, residual, activation="gelu", beta=0.5)
    grads = torch.autograd.grad(out.sum(), (a, b, c, bias, residual))
    expected = torch.autograd.grad(FULL.composed(**tensors).sum(), (a, b, c, bias, residual))
    torch.testing.assert_close(grads, expected)


def test_checkpointing_and_saved_tensor_hooks():
    tensors = FULL.tensors(requires_grad=True)
    inputs = list(tensors.values())

    def gradient(out):
        return torch.autograd.grad(out.sum(), inputs)

    expected = gradient(FULL.composed(**tensors))
    result = torch.utils.checkpoint.checkpoint(FULL.fused, use_reentrant=False, **tensors)
    torch.testing.assert_close(gradient(result), expected)
    with torch.autograd.graph.save_on_cpu():
        out = FULL.fused(**tensors)
    torch.testing.assert_close(gradient(out), expected)


def test_inference_mode_and_no_grad_leave_no_graph():
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    with torch.no_grad():
        assert not tcgemm.mm(a, b).requires_grad
        assert not torch.ops.tcgemm.mm(a, b).requires_grad
    with torch.inference_mode():
        assert tcgemm.mm(a, b).is_inference()


def test_backward_inside_autocast_keeps_the_dtypes():
    tensors = FULL.tensors(torch.float32, requires_grad=True)
    out = FULL.fused(**tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        grads = torch.autograd.grad(out.sum(), list(tensors.values()))
    expected = torch.autograd.grad(FULL.composed(**tensors).sum(), list(tensors.values()))
    for g, e in zip(grads, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)


NODES = {
    "TcgemmMm": lambda x: tcgemm.mm(x, x),
    "TcgemmBmm": lambda x: tcgemm.bmm(x[None], x[None]),
    "TcgemmMatmul": lambda x: tcgemm.matmul(x, x[0]),
    "TcgemmAddmm": lambda x: tcgemm.addmm(x, x, x),
    "TcgemmBaddbmm": lambda x: tcgemm.baddbmm(x, x[None], x[None]),
    "TcgemmLinear": lambda x: tcgemm.linear(x, x),
    "TcgemmScaledMm": lambda x: tcgemm.mm(x, x, scale_a=torch.ones(())),
    "TcgemmScaledMmAmax": lambda x: tcgemm.mm(x, x, amax=True)[0],
    "TcgemmQuantizedLinear": lambda x: tcgemm.quantized_linear(x, x),
}


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_called_as_its_operator(name):
    x = torch.randn(4, 4, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        out = NODES[name](x)
        out.sum().backward()
    assert out.grad_fn.name() == f"{name}Backward"
    names = {event.key for event in profile.key_averages()}
    assert {name, f"{name}Backward"} <= names
