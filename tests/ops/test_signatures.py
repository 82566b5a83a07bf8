"""The signatures of the products and of what asks about them; options that there are not."""

import inspect
import re
import types
import typing

import pytest
import torch

import tcgemm
from tcgemm import emulate

A, B, C = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
OPTIONS = (
    "bias: torch.Tensor | None = None, "
    "activation: Optional[Literal['relu', 'gelu', 'gelu_tanh', 'silu']] = None, "
    "residual: torch.Tensor | None = None, alpha: float = 1.0, "
    "scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None, "
    "zero_a: torch.Tensor | None = None, zero_b: torch.Tensor | None = None, "
    "scale_out: torch.Tensor | None = None, amax: bool = False, "
    "out_dtype: torch.dtype | str | None = None, acc_dtype: torch.dtype | str | None = None, "
    "precision: Optional[Literal['highest', 'high', 'medium', 'prepared', 'promoted', 'fast']]"
    " = None, batch_invariant: bool = False, out: torch.Tensor | None = None"
)
AFTER_BIAS = OPTIONS.split(", ", 1)[1]
OPERAND = "torch.Tensor | tcgemm.ops.operands.Operand"
PAIR = "-> torch.Tensor | tuple[torch.Tensor, torch.Tensor]"
QUESTION = (
    f"(a: torch.Tensor, b: {OPERAND}, *, c: torch.Tensor | None = None, beta: float = 1.0, "
    f"{OPTIONS}, offs: torch.Tensor | None = None, accumulate: bool = False, "
    "device: str | None = None, kernel: str | None = None) "
    "-> tcgemm.ops.explanation.Explanation"
)
SIGNATURES = {
    "mm": f"(a: torch.Tensor, b: {OPERAND}, *, {OPTIONS}) {PAIR}",
    "bmm": f"(a: torch.Tensor, b: torch.Tensor, *, {OPTIONS}) {PAIR}",
    "matmul": f"(a: torch.Tensor, b: {OPERAND}, *, {OPTIONS}) {PAIR}",
    "addmm": f"(c: torch.Tensor, a: torch.Tensor, b: {OPERAND}, *, beta: float = 1.0, {OPTIONS}) "
    f"{PAIR}",
    "baddbmm": "(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1.0, "
    f"{OPTIONS}) {PAIR}",
    "linear": f"(x: torch.Tensor, weight: {OPERAND}, bias: torch.Tensor | None = None, *, "
    f"{AFTER_BIAS}) {PAIR}",
    "explain": QUESTION,
    "check_layout": QUESTION,
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert str(inspect.signature(getattr(tcgemm, name))) == SIGNATURES[name]


def test_signature_of_the_emulator():
    """The emulator's own arguments have their annotations as text."""
    parameters = inspect.signature(emulate.mm).parameters
    expected = inspect.signature(tcgemm.addmm).parameters.keys()
    assert set(parameters) == expected | {"kernel", "device", "before_activation"}
    assert list(parameters)[:4] == ["a", "b", "c", "beta"]
    assert parameters["device"].default == "H200" and parameters["precision"].default is None


@pytest.mark.parametrize("name", [name for name in SIGNATURES if SIGNATURES[name] != QUESTION])
def test_overloads_have_the_arguments_of_the_function(name):
    parameters = inspect.signature(getattr(tcgemm, name)).parameters
    place = types.SimpleNamespace(__module__="tcgemm.ops.functional", __qualname__=name)
    overloads = [inspect.signature(overload) for overload in typing.get_overloads(place)]
    results = (torch.Tensor, tuple[torch.Tensor, torch.Tensor])
    assert tuple(overload.return_annotation for overload in overloads) == results
    for overload, amax in zip(overloads, (False, True), strict=True):
        arguments = dict(overload.parameters)
        assert arguments.pop("amax").annotation == typing.Literal[amax]
        options = arguments.pop("options").annotation.__args__[0].__annotations__
        assert {*arguments, *options, "amax"} == parameters.keys()
        for key, annotation in options.items():
            assert parameters[key].annotation == annotation
        for key, argument in arguments.items():
            assert parameters[key].annotation == argument.annotation


QUESTIONS = {
    "tcgemm.mm": lambda **options: tcgemm.mm(A, B, **options),
    "tcgemm.addmm": lambda **options: tcgemm.addmm(C, A, B, **options),
    "tcgemm.linear": lambda **options: tcgemm.linear(A, B.t(), **options),
    "tcgemm.explain": lambda **options: tcgemm.explain(A, B, **options),
    "tcgemm.emulate.mm": lambda **options: emulate.mm(A, B, **options),
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("others", [{}, {"activation": "relu"}, {"scale_a": torch.ones(1)}])
def test_unknown_option(name, others):
    text = (
        f"{name}: there is no option 'activaton'; the nearest is 'activation', and the options are "
    )
    with pytest.raises(TypeError, match="^" + re.escape(text)) as refused:
        QUESTIONS[name](**others, activaton="relu")
    function = emulate.mm if name == "tcgemm.emulate.mm" else getattr(tcgemm, name[7:])
    listed = str(refused.value).removeprefix(text).removesuffix(".").split(", ")
    assert {*listed} == inspect.signature(function).parameters.keys() - {*"abcx", "weight"} | (
        {"c"} if name in ("tcgemm.explain", "tcgemm.emulate.mm") else set()
    )


@pytest.mark.parametrize("name", ["mm", "bmm", "matmul", "linear"])
def test_only_products_that_add_c_have_beta(name):
    operands = (A, B.t()) if name == "linear" else (A[None], B[None]) if name == "bmm" else (A, B)
    with pytest.raises(TypeError, match=f"^tcgemm.{name}: there is no option 'beta'; "):
        getattr(tcgemm, name)(*operands, beta=0.5)
