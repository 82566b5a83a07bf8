"""Calls that go past torch's dispatcher, and those that must not: whoever listens to the dispatcher
hears of the call, and tensors that a kernel cannot read get what the dispatcher gives them.
"""

import pytest
import torch
from torch.autograd import forward_ad

import tcgemm
from tcgemm.ops import calls, direct
from tcgemm.ops.epilogue import DEFAULT
from tcgemm.ops.operators import LINEAR, MM

from support import cases
from support.calls import Counter


@pytest.fixture
def direct_calls(monkeypatch):
    """For each call, whether it went past the dispatcher."""
    noted = []

    def noting(function):
        def note(*arguments):
            result = function(*arguments)
            noted.append(result is not None)
            return result

        return note

    for name in ("run", "run_pass"):
        monkeypatch.setattr(direct, name, noting(getattr(direct, name)))
    return noted


def operands():
    return torch.randn(3, 8), torch.randn(8, 5)


@pytest.mark.parametrize("device", cases.DEVICES)
@pytest.mark.parametrize("grad", [False, True])
def test_plain_calls_take_it(direct_calls, device, grad):
    a, b = (x.to(device, torch.bfloat16).requires_grad_(grad) for x in operands())
    bias = torch.randn(5, device=device)
    results = [tcgemm.mm(a, b), tcgemm.linear(a, b.t(), bias), tcgemm.mm(a, b, bias=bias)]
    assert direct_calls == [True] * 3
    assert all(result.requires_grad is grad for result in results)
    expected = torch.ops.tcgemm.mm(a, b), torch.ops.tcgemm.linear(a, b.t(), bias)
    assert torch.equal(results[0], expected[0]) and torch.equal(results[1], expected[1])


OPTIONS = (
    {"activation": "relu"},
    {"alpha": 2.0, "batch_invariant": True},
    {"residual": torch.randn(3, 5), "out_dtype": torch.float16},
    {"scale_a": torch.tensor(0.5), "scale_b": torch.full((1, 5), 2.0)},
    {"scale_out": torch.tensor(0.25), "amax": True},
)


@pytest.mark.parametrize("device", cases.DEVICES)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options))
def test_calls_with_options_take_it(direct_calls, device, options):
    a, b = (x.to(device) for x in operands())
    options = {
        name: option.to(device) if isinstance(option, torch.Tensor) else option
        for name, option in options.items()
    }
    results = tcgemm.mm(a, b, **options)
    assert direct_calls == [True]
    with Counter() as mode:  # the same call by the dispatcher
        expected = tcgemm.mm(a, b, **options)
    assert direct_calls == [True, False] and sum(mode.calls.values()) == 1
    pairs = zip(results, expected, strict=True) if "amax" in options else [(results, expected)]
    assert all(torch.equal(result, other) for result, other in pairs)


def test_every_tensor_of_the_epilogue_is_looked_at(direct_calls):
    a, b = operands()
    tensors = {
        "bias": torch.randn(5),
        "residual": torch.randn(3, 5),
        "scale_a": torch.rand(3, 1),
        "scale_b": torch.rand(1, 5),
        "scale_out": torch.rand(1),
    }
    for name, tensor in tensors.items():
        expected = tcgemm.mm(a, b, **{name: -tensor})
        assert torch.equal(tcgemm.mm(a, b, **{name: torch._neg_view(tensor)}), expected), name
        with pytest.raises(RuntimeError, match="meta"):
            tcgemm.mm(a, b, **{name: torch.empty(tensor.shape, device="meta")})
    c = torch.randn(3, 5)
    expected = tcgemm.addmm(-c, a, b, beta=0.5)
    assert torch.equal(tcgemm.addmm(torch._neg_view(c), a, b, beta=0.5), expected)
    assert direct_calls == [True, False, False] * len(tensors) + [True, False]


@pytest.mark.parametrize("grad", [False, True])
def test_modes_and_profilers_see_the_call(direct_calls, grad):
    a, b = operands()
    b.requires_grad_(grad)
    with Counter() as mode:
        tcgemm.mm(a, b)
    assert (mode.calls, mode.others) == ({"mm": 1}, {})
    with torch.profiler.profile() as profile:
        tcgemm.mm(a, b)
    assert "tcgemm::mm" in {event.name for event in profile.events()}
    with torch.autograd.profiler.profile() as profile:
        tcgemm.mm(a, b)
    assert "tcgemm::mm" in {event.name for event in profile.function_events}
    assert direct_calls == [False] * 3


def test_the_negative_bit_is_read(direct_calls):
    a, b = operands()
    for x, y in ((torch._neg_view(a), b), (a, torch._neg_view(b))):
        assert torch.equal(tcgemm.mm(x, y), -tcgemm.mm(a, b))
    bias = torch.randn(5)
    expected = tcgemm.mm(a, b, bias=-bias)
    assert torch.equal(tcgemm.mm(a, b, bias=torch._neg_view(bias)), expected)
    assert direct_calls == [False, True, False, True, True, False]


def test_a_tensor_without_memory(direct_calls):
    a, b = operands()
    zero = torch._efficientzerotensor(3, 8)
    assert not tcgemm.mm(zero, b).any()
    assert not tcgemm.mm(a, torch._efficientzerotensor(8, 5)).any()
    for x, y in ((a.to("meta"), b.to("meta")), (a.to("meta"), b.to("meta").requires_grad_())):
        assert tcgemm.mm(x, y).is_meta
    for x, y in ((a.to("meta"), b), (a, b.to("meta"))):
        with pytest.raises(RuntimeError, match="has no values on meta"):
            tcgemm.mm(x, y)
    with pytest.raises(RuntimeError, match="has no values on meta"):
        tcgemm.mm(a, b, bias=torch.empty(5, device="meta"))
    assert not any(direct_calls)


def test_a_wrapper_that_outlived_its_transform(direct_calls):
    wrappers = []

    def keep(x):
        wrappers.append(x)
        return x.sum()

    a, b = operands()
    torch.func.grad(keep)(a)
    assert torch.equal(tcgemm.mm(wrappers[0], b), tcgemm.mm(a, b))
    assert direct_calls[1:] == [True]  # newer ones of torch unwrap it


def test_errors_are_those_of_the_operator(direct_calls):
    a, b = operands()
    with pytest.raises(RuntimeError) as error:
        tcgemm.mm(a, b.t())
    with pytest.raises(RuntimeError) as other:
        MM.default(a, b.t())
    assert str(error.value) == str(other.value)
    assert direct.run(LINEAR, a.to_sparse(), b.t(), None, None, None, DEFAULT) is None
    assert not any(direct_calls)


@pytest.mark.parametrize(
    "options", [{"activation": ["relu"]}, {"alpha": 2.75 + 0j}, {"alpha": [1]}]
)
def test_an_option_of_a_wrong_type(direct_calls, options):
    """One without a hash, or equal to a good one, leaves the call to the dispatcher."""
    a, b = operands()
    for _ in range(2):
        with pytest.raises(TypeError, match="must be"):
            tcgemm.mm(a, b, **options)


PRODUCTS = {  # with the gradients of a, b and the bias
    "mm": (tcgemm.mm, (3, 8), (8, 5)),
    "linear": (tcgemm.linear, (3, 8), (5, 8)),
    "linear of a batch": (tcgemm.linear, (2, 3, 8), (5, 8)),
    "bmm": (tcgemm.bmm, (2, 3, 8), (2, 8, 5)),
    "matmul with one b": (tcgemm.matmul, (2, 3, 8), (8, 5)),
}


def integers(shape, device):
    return torch.randint(-4, 5, shape).float().to(device)


def learning(name, device="cpu", column_major=False):
    """(the product, its operands that need a gradient, the gradient of its result)"""
    function, *shapes = PRODUCTS[name]
    tensors = [integers(shape, device) for shape in (*shapes, (5,))]
    if column_major:
        tensors[:2] = (tensor.mT.contiguous().mT for tensor in tensors[:2])
    a, b, bias = (tensor.requires_grad_() for tensor in tensors)
    result = function(a, b, bias=bias)
    return result, (a, b, bias), integers(result.shape, device)


@pytest.mark.parametrize("device", cases.DEVICES)
@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_backward_takes_it(direct_calls, monkeypatch, name, column_major, device):
    result, inputs, grad = learning(name, device, column_major)
    del direct_calls[:]
    with monkeypatch.context() as patch:
        patch.setattr(calls, "run", None)  # the way of derivatives that have derivatives
        gradients = torch.autograd.grad(result, inputs, grad, retain_graph=True)
    in_one_call = name != "bmm" and not column_major
    count = len(direct_calls)
    assert direct_calls == [True] * (1 if in_one_call else 3)
    with Counter() as mode:
        expected = torch.autograd.grad(result, inputs, grad)
    assert mode.calls == {"matmul": 2, "_sum_rows": 1} and not any(direct_calls[count:])
    for gradient, other, tensor in zip(gradients, expected, inputs, strict=True):
        assert torch.equal(gradient, other) and gradient.shape == tensor.shape
        assert gradient.stride() == other.stride() == tensor.stride()


def in_a_dual_level(*arguments):
    with forward_ad.dual_level():
        return torch.autograd.grad(*arguments)


def mapped(result, inputs, grad):
    function = torch.func.vmap(
        lambda grad: torch.autograd.grad(result, inputs, grad, retain_graph=True)
    )
    return [gradient[0] for gradient in function(grad[None])]


def batched(result, inputs, grad):
    gradients = torch.autograd.grad(result, inputs, grad[None], is_grads_batched=True)
    return [gradient[0] for gradient in gradients]


def with_second_derivatives(*arguments):
    gradients = torch.autograd.grad(*arguments, create_graph=True)
    assert all(gradient.requires_grad for gradient in gradients[:2])
    return gradients


def profiled(*arguments):
    with torch.profiler.profile() as profile:
        gradients = torch.autograd.grad(*arguments)
    names = [event.name for event in profile.events()]
    assert names.count("tcgemm::matmul") == 2 and names.count("tcgemm::_sum_rows") == 1
    return gradients


def negated(result, inputs, grad):
    return torch.autograd.grad(result, inputs, torch._neg_view(-grad))


@pytest.mark.parametrize(
    "way", [in_a_dual_level, mapped, batched, with_second_derivatives, profiled, negated]
)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_backward_that_needs_the_dispatcher(direct_calls, name, way):
    result, inputs, grad = learning(name)
    expected = torch.autograd.grad(result, inputs, grad, retain_graph=True)
    del direct_calls[:]
    gradients = way(result, inputs, grad)
    assert all(map(torch.equal, gradients, expected))
    if way is not with_second_derivatives:  # whose products are forwards
        assert not any(direct_calls)
