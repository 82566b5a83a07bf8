"""The Python front: what it refuses itself, out=, tensor subclasses, lazy views, documentation."""

import inspect
import pydoc

import pytest
import torch
from torch.overrides import TorchFunctionMode

import tcgemm
from tcgemm.ops.operators import PLAIN

from support.error_asserts import error_message

A, B, C = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
FUNCTIONS = (*(op.name for op in PLAIN), "check_layout", "explain")
QUANTIZED = ("quantize", "dequantize", "quantized_linear")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: tcgemm.mm([[1.0]], B), "tcgemm.mm: a must be a torch.Tensor, but is list"),
        (lambda: tcgemm.mm(A, B.numpy()), "tcgemm.mm: b must be a torch.Tensor, but is ndarray"),
        (lambda: tcgemm.linear(None, B), "tcgemm.linear: x must be a torch.Tensor, but is NoneT"),
        (lambda: tcgemm.linear(A, 2), "tcgemm.linear: weight must be a torch.Tensor, but is int"),
        (lambda: tcgemm.addmm(None, A, B), "tcgemm.addmm: c must be a torch.Tensor, but is None"),
        (lambda: tcgemm.baddbmm(2, A, B), "tcgemm.baddbmm: c must be a torch.Tensor, but is int"),
        (lambda: tcgemm.mm(A, B, bias=1.0), "tcgemm.mm: bias must be a torch.Tensor, but is float"),
        (lambda: tcgemm.mm(A, B, residual=0), "tcgemm.mm: residual must be a torch.Tensor, but is"),
        (lambda: tcgemm.mm(A, B, out=()), "tcgemm.mm: out must be a torch.Tensor, but is tuple"),
        (lambda: tcgemm.explain(A, 3), "tcgemm.explain: b must be a torch.Tensor, but is int"),
    ],
)
def test_what_is_no_tensor_is_a_type_error(call, sentence):
    assert error_message(call, TypeError).startswith(sentence)


def test_tensors_are_positional_and_all_else_is_not():
    with pytest.raises(TypeError):
        tcgemm.mm(A, B, None)
    with pytest.raises(TypeError):
        tcgemm.linear(A, B.t(), None, "relu")


def test_nested_tensors_are_refused_in_a_sentence():
    nested = torch.nested.nested_tensor([A, A], layout=torch.jagged)
    with pytest.raises(RuntimeError, match="a is a nested tensor, but every operand must be a den"):
        tcgemm.matmul(nested, B)
    with pytest.raises(RuntimeError, match="b is a nested tensor, but every operand must be a den"):
        tcgemm.matmul(A, nested, amax=True)


@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "residual", "out"])
def test_out_is_refused_where_a_gradient_would_be_lost(name):
    tensors = {"a": A, "b": B, "c": C, "bias": torch.randn(5), "residual": C, "out": C.clone()}
    tensors[name] = tensors[name].clone().requires_grad_()

    def call(a, b, c, **options):
        return tcgemm.addmm(c, a, b, **options)

    with pytest.raises(RuntimeError, match=f"out= cannot be differentiated, but {name} needs a gr"):
        call(**tensors)
    with torch.no_grad():
        assert call(**tensors) is tensors["out"]


def test_out_in_forward_mode():
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(A, A)
        with pytest.raises(RuntimeError, match="but x needs a gradient"):
            tcgemm.linear(dual, B.t().contiguous(), out=torch.empty(3, 5))
        assert torch.equal(tcgemm.mm(A, B, out=torch.empty(3, 5)), tcgemm.mm(A, B))


def test_out_is_written_and_returned():
    out = torch.zeros(5, 3).t()
    assert tcgemm.mm(A, B, activation="relu", out=out) is out
    assert torch.equal(out, tcgemm.mm(A, B, activation="relu"))
    with torch.inference_mode():
        assert tcgemm.mm(A, B, out=torch.empty(3, 5)).is_inference()


def test_backward_notices_that_out_was_overwritten():
    x, square = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    loss = tcgemm.mm(x, square).sum()
    tcgemm.mm(square.clone(), square.clone(), out=square)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_negated_and_zero_tensors():
    """Lazy bits of torch are made real by the dispatcher before a kernel sees them."""
    negated = torch.view_as_complex(torch.randn(3, 4, 2)).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(tcgemm.mm(negated, B), negated @ B)
    assert torch.equal(tcgemm.mm(torch._efficientzerotensor(3, 4), B), torch.zeros(3, 5))


class Tagged(torch.Tensor):
    """A subclass with torch's default __torch_function__."""


class Logged(torch.Tensor):
    """A subclass that sees every function call."""

    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((func, sorted(key for key, value in kwargs.items() if value is not None)))
        return super().__torch_function__(func, types, args, kwargs)


def test_subclasses_with_a_torch_function():
    out = tcgemm.mm(A.as_subclass(Tagged), B, activation="relu")
    assert type(out) is Tagged
    assert torch.equal(out.as_subclass(torch.Tensor), tcgemm.mm(A, B, activation="relu"))
    Logged.calls.clear()
    bias = torch.randn(5).as_subclass(Logged)
    tcgemm.addmm(C, A, B, bias=bias, beta=0.5)
    tcgemm.linear(A.as_subclass(Logged), B.t(), residual=C)
    assert Logged.calls == [
        (tcgemm.addmm, ["beta", "bias"]),
        (tcgemm.linear, ["residual"]),
    ]


def test_torch_function_modes():
    functions = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            functions.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        out = tcgemm.mm(A, B)
    assert functions[0] is tcgemm.mm and torch.equal(out, tcgemm.mm(A, B))
    with torch.device("meta"):
        assert tcgemm.mm(A, B).device.type == "cpu"


def test_meta_and_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    out = tcgemm.linear(torch.empty(2, 3, 4, device="meta"), torch.empty(5, 4, device="meta"))
    assert out.shape == (2, 3, 5) and out.is_contiguous()
    with FakeTensorMode():
        a, b = torch.empty(3, 4).half(), torch.empty(7, 4, 5).half()
        out = tcgemm.matmul(a, b, out_dtype=torch.float32)
    assert out.shape == (7, 3, 5) and out.dtype is torch.float32


def test_every_function_is_documented_with_its_arguments():
    for name in (*FUNCTIONS, *QUANTIZED, "prepare"):
        function = getattr(tcgemm, name)
        assert function.__module__ == "tcgemm"
        for argument in inspect.signature(function).parameters:
            assert argument in function.__doc__, f"{name} says nothing of {argument}"
        assert "Example:" in function.__doc__ and "aises" in function.__doc__


def test_help_shows_the_signature_and_the_shared_arguments():
    text = pydoc.plain(pydoc.render_doc(tcgemm.mm))
    operand = "torch.Tensor | tcgemm.ops.operands.Operand"
    assert f"mm(a: torch.Tensor, b: {operand}, *, bias:" in text
    assert "activation: Optional[Literal['relu', 'gelu', 'gelu_tanh', 'silu']] = None" in text
    assert "alpha: float = 1.0" in text
    assert "Order of operations:" in text
