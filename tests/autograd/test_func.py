"""torch.func on every operator, in float64: the same as on torch's expression."""

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import tcgemm

from support import cases
from support.calls import Recorder
from support.torch_reference import CASES, Case


def close(results, expected):
    torch.testing.assert_close(results, expected, rtol=1e-10, atol=1e-10)


def positional(case, function):
    """The call as a function of its tensors in the order of case.tensors()."""
    names = list(case.tensors())
    return lambda *values: function(**dict(zip(names, values, strict=True)))


def both(case, transform, *arguments):
    """transform(function)(*arguments) of the fused call and of the expression."""
    return [
        transform(positional(case, function))(*arguments)
        for function in (case.fused, case.composed)
    ]


def scalar(function):
    return lambda *values: function(*values).sin().sum()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_grad_vjp_and_jvp(case):
    values = tuple(case.tensors().values())
    tangents = tuple(case.tensors(seed=1).values())
    indices = tuple(range(len(values)))
    close(*both(case, lambda f: grad(scalar(f), indices), *values))
    close(*both(case, lambda f: lambda *v: vjp(f, *v)[1](torch.ones_like(f(*v))), *values))
    close(*both(case, lambda f: lambda *v: jvp(f, v, tangents), *values))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_jacobians_and_hessians(case):
    values = tuple(case.tensors().values())
    indices = tuple(range(len(values)))
    close(*both(case, lambda f: jacrev(f, indices), *values))
    close(*both(case, lambda f: jacfwd(f, indices), *values))
    close(*both(case, lambda f: hessian(scalar(f), indices), *values))


@pytest.mark.parametrize("case", [CASES[3], CASES[9], CASES[16], CASES[19]], ids=str)
def test_second_derivatives_in_every_order(case):
    values = tuple(case.tensors().values())
    for outer in (jacrev, jacfwd):
        for inner in (jacrev, jacfwd):
            close(*both(case, lambda f, o=outer, i=inner: o(i(scalar(f), 0), 1), *values))


def test_third_derivative():
    case = Case("mm", (2, 2), (2, 1), bias=(1,), activation="gelu")
    values = tuple(case.tensors().values())
    close(*both(case, lambda f: jacfwd(hessian(scalar(f))), *values))
    case = Case("mm", (2, 2), (2, 1), activation="silu")
    values = tuple(case.tensors().values())
    close(*both(case, lambda f: jacrev(jacrev(grad(scalar(f)))), *values))


def stacked(case, dims, size=3):
    """The case's tensors, with a vmapped dimension where dims has a number."""
    examples = [list(case.tensors(seed=seed).values()) for seed in range(size)]
    return [
        examples[0][i] if dim is None else torch.stack([e[i] for e in examples], dim)
        for i, dim in enumerate(dims)
    ]


def choices(case):
    """in_dims: each tensor alone, all of them, all in their last place."""
    shapes = [tensor.dim() for tensor in case.tensors().values()]
    for i in range(len(shapes)):
        yield tuple(0 if i == j else None for j in range(len(shapes)))
    yield (0,) * len(shapes)
    yield tuple(shapes)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vmap(case):
    for dims in choices(case):
        values = stacked(case, dims)
        close(*both(case, lambda f, d=dims: vmap(f, d), *values))
        close(*both(case, lambda f, d=dims: vmap(f, d, out_dims=-1), *values))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vmap_of_grad_and_grad_of_vmap(case):
    indices = tuple(range(len(case.tensors())))
    for dims in choices(case):
        values = stacked(case, dims)
        close(*both(case, lambda f, d=dims: vmap(grad(scalar(f), indices), d), *values))
        close(*both(case, lambda f, d=dims: grad(scalar(vmap(f, d)), indices), *values))


@pytest.mark.parametrize("case", [CASES[2], CASES[8], CASES[12], CASES[19]], ids=str)
def test_nested_vmap(case):
    count = len(case.tensors())
    values = stacked(case, (0,) * count)
    values[0] = torch.stack([values[0], -values[0]])
    outer = (0,) + (None,) * (count - 1)
    close(*both(case, lambda f: vmap(vmap(f), outer), *values))
    close(*both(case, lambda f: vmap(vmap(grad(scalar(f)), randomness="same"), outer), *values))


@pytest.mark.parametrize("case", [CASES[1], CASES[10]], ids=str)
def test_vmap_of_tensors_that_need_a_gradient(case):
    values = [v.requires_grad_() for v in stacked(case, (0,) * len(case.tensors()))]
    close(*[torch.autograd.grad(out.sum(), values) for out in both(case, vmap, *values)])


@pytest.mark.parametrize("seed", range(16))
def test_random_transforms(seed):
    generator = torch.Generator().manual_seed(seed)

    def pick(*options):
        return options[torch.randint(len(options), (), generator=generator)]

    m, n, k = pick(1, 4), pick(1, 3), pick(0, 1, 5)
    case = Case(
        "matmul",
        pick((m, k), (2, m, k), (k,)),
        pick((k, n), (2, k, n)),
        bias=pick(None, (n,)),
        residual=pick(None, (n,), ()),
        activation=pick(None, *cases.ACTIVATIONS),
    )
    dims = (0, *(pick(None, 0) for _ in list(case.tensors())[1:]))
    values = stacked(case, dims)
    close(*both(case, lambda f: vmap(jacrev(f), dims), *values))
    if k > 0:  # torch 2.11 fails an assertion of its own on empty tensors here
        close(*both(case, lambda f: vmap(jacfwd(grad(scalar(f), 1)), dims), *values))


def test_vmap_is_one_call():
    def shapes(func, args, kwargs):
        tensors = [x for x in args[:2] if isinstance(x, torch.Tensor)]
        return [(func._opname, *(tuple(tensor.shape) for tensor in tensors))]

    weight, bias = torch.randn(5, 4), torch.randn(5)
    with Recorder(shapes) as calls:
        vmap(lambda x: tcgemm.linear(x, weight, bias, activation="relu"))(torch.randn(7, 4))
    products = [call for call in calls.rows if call[0] in ("linear", "mm", "matmul", "_gemm")]
    assert products == [("matmul", (7, 1, 4), (4, 5))]


def test_module_under_functional_call():
    layer = tcgemm.nn.Linear(4, 5, activation="silu", dtype=torch.float64)
    x = torch.randn(6, 4, dtype=torch.float64)
    parameters = dict(layer.named_parameters())

    def loss(parameters, row):
        return functional_call(layer, parameters, (row,)).square().sum()

    def expected(parameters, row):
        z = torch.nn.functional.linear(row, parameters["weight"], parameters["bias"])
        return torch.nn.functional.silu(z).square().sum()

    per_example = vmap(grad(loss), (None, 0))(parameters, x)
    close(per_example, vmap(grad(expected), (None, 0))(parameters, x))


def test_out_is_refused_under_transforms():
    a, b, out = torch.randn(3, 4), torch.randn(4, 5), torch.empty(3, 5)
    with pytest.raises(RuntimeError, match=r"out= cannot be differentiated, but a needs"):
        grad(lambda a: tcgemm.mm(a, b, out=out).sum())(a)
    with pytest.raises(RuntimeError, match=r"out= cannot be differentiated, but a needs"):
        jvp(lambda a: tcgemm.mm(a, b, out=out), (a,), (a,))
    with pytest.raises(RuntimeError, match=r"out= does not work under torch.vmap, but a is mapped"):
        vmap(lambda a: tcgemm.mm(a, b, out=out))(a[None])
