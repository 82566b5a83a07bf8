"""Arguments of a wrong Python type end in a sentence of ours, not of torch's dispatcher."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import tcgemm

from support.error_asserts import error_message

A, B, C = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
X, WEIGHT = torch.randn(3, 4), torch.randn(5, 4)
BATCH_A, BATCH_B = A[None], B[None]
PREPARED = tcgemm.prepare(WEIGHT)
CALLS = {
    "mm": lambda **options: tcgemm.mm(A, B, **options),
    "bmm": lambda **options: tcgemm.bmm(BATCH_A, BATCH_B, **options),
    "matmul": lambda **options: tcgemm.matmul(BATCH_A, B, **options),
    "addmm": lambda **options: tcgemm.addmm(C, A, B, **options),
    "baddbmm": lambda **options: tcgemm.baddbmm(C, BATCH_A, BATCH_B, **options),
    "linear": lambda **options: tcgemm.linear(X, WEIGHT, **options),
    "quantized_linear": lambda **options: tcgemm.quantized_linear(X, WEIGHT, **options),
    "explain": lambda **options: tcgemm.explain(A, B, **options),
    "check_layout": lambda **options: tcgemm.check_layout(A, B, **options),
}
# Every way to the operators: without scales, with them, and a Prepared.
WAYS = {
    **CALLS,
    "mm with scales": lambda **options: tcgemm.mm(A, B, scale_a=torch.ones(()), **options),
    "linear with a Prepared": lambda **options: tcgemm.linear(X, PREPARED, **options),
    "mm with out": lambda **options: tcgemm.mm(A, B, out=torch.empty(3, 5), **options),
    "mm of a leaf": lambda **options: tcgemm.mm(A.clone().requires_grad_(), B, **options),
}
WRONG = {
    "out_dtype as a strange str": (
        {"out_dtype": "fp8"},
        "out_dtype is 'fp8', but it must be a torch.dtype or its name; pass one of torch's, "
        "such as torch.bfloat16, or None.",
    ),
    "out_dtype as a type": ({"out_dtype": float}, "out_dtype is <class 'float'>, but it must be a"),
    "acc_dtype": ({"acc_dtype": "torch.f32"}, "acc_dtype is 'torch.f32', but it must be"),
    "activation as a function": (
        {"activation": torch.relu},
        'activation is relu, but it must be one of the words "relu", "gelu", "gelu_tanh", '
        '"silu"; pass "relu".',
    ),
    "activation as a module": (
        {"activation": torch.nn.GELU(approximate="tanh")},
        'activation is GELU, but it must be one of the words "relu", "gelu", "gelu_tanh", '
        '"silu"; pass "gelu_tanh".',
    ),
    "activation as another function": ({"activation": torch.tanh}, "activation is tanh, but it"),
    "precision": ({"precision": torch.float16}, "precision is torch.float16, but it must be a str"),
    "alpha": ({"alpha": "2"}, "alpha is '2', but it must be a number; pass a float."),
}


QUANTIZED = {"out_dtype", "activation", "precision"}  # the options that quantized_linear has


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_type_is_named(way, wrong):
    options, expected = WRONG[wrong]
    if way == "quantized_linear" and not options.keys() <= QUANTIZED:
        pytest.skip("quantized_linear has no such option")
    text = error_message(lambda: WAYS[way](**options), TypeError)
    assert text.startswith(f"tcgemm.{way.split()[0]}: {expected}")
    assert text.endswith(".") and "; " in text and "\n" not in text


@pytest.mark.parametrize("way", WAYS)
def test_a_dtype_that_the_abi_does_not_know(way):
    for name in ("out_dtype", "acc_dtype")[: 1 + (way != "quantized_linear")]:
        text = error_message(lambda name=name: WAYS[way](**{name: torch.int4}))
        assert text.startswith(f"tcgemm.{way.split()[0]}: {name} is torch.int4, but")


def test_the_dtype_of_quantized_linear():
    text = error_message(lambda: CALLS["quantized_linear"](dtype="int4"))
    assert text.startswith(
        "tcgemm.quantized_linear: dtype is 'int4', but it must be one of float8_"
    )
    text = error_message(lambda: CALLS["quantized_linear"](dtype=torch.half))
    assert text.startswith("tcgemm.quantized_linear: dtype is torch.float16, but values are quant")


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"quantized_linear"}))
def test_amax_is_a_bool(name):
    text = error_message(lambda: CALLS[name](amax="yes"), TypeError)
    assert text == f"tcgemm.{name}: amax is 'yes', but it must be True or False."
    assert CALLS[name](amax=1) is not None


FLAGS = {
    "mm": lambda value: tcgemm.mm(A, B, batch_invariant=value),
    "mm amax": lambda value: tcgemm.mm(A, B, amax=value),
    "linear": lambda value: tcgemm.linear(X, WEIGHT, batch_invariant=value),
    "swap_linear": lambda value: tcgemm.swap_linear(nn.Linear(4, 4), batch_invariant=value),
    "swap_linear prepare": lambda value: tcgemm.swap_linear(nn.Linear(4, 4), prepare=value),
    "nn.Linear": lambda value: tcgemm.nn.Linear(4, 4, batch_invariant=value),
    "nn.Linear prepare": lambda value: tcgemm.nn.Linear(4, 4, prepare=value),
    "nn.QuantLinear": lambda value: tcgemm.nn.QuantLinear(4, 4, batch_invariant=value),
    "nn.PackedLinear": lambda value: tcgemm.nn.PackedLinear(128, 4, batch_invariant=value),
    "nn.SparseLinear24": lambda value: tcgemm.nn.SparseLinear24(4, 4, batch_invariant=value),
    "nn.SparseLinear24 learns": lambda value: tcgemm.nn.SparseLinear24(4, 4, learns=value),
    "nn.Float8Linear": lambda value: tcgemm.nn.Float8Linear(4, 4, batch_invariant=value),
    "nn.Conv1D": lambda value: tcgemm.nn.Conv1D(4, 4, batch_invariant=value),
    "nn.MultiheadAttention": lambda value: tcgemm.nn.MultiheadAttention(
        4, 2, batch_invariant=value
    ),
    "compress24 prune": lambda value: tcgemm.compress24(WEIGHT * 0, prune=value),
    "compress24 transposable": lambda value: tcgemm.compress24(
        WEIGHT.half() * 0, transposable=value
    ),
    "pack_weight zero_points": lambda value: tcgemm.pack_weight(
        WEIGHT, group_size=None, zero_points=value
    ),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags(name):
    function, option = (*name.split(), "batch_invariant")[:2]
    for value in (2, -1, 1.0, "yes", None, torch.tensor(True)):
        text = error_message(lambda value=value: FLAGS[name](value), TypeError)
        assert text == f"tcgemm.{function}: {option} is {value!r}, but it must be True or False."
    for value in (0, False, np.bool_(False)):
        FLAGS[name](value)
    if name != "nn.Float8Linear":
        for value in (1, True, np.bool_(True)):
            FLAGS[name](value)


INTEGERS = {
    "pack_weight group_size": lambda value: tcgemm.pack_weight(torch.ones(4, 64), group_size=value),
    "swap_linear group_size": lambda value: tcgemm.swap_linear(
        nn.Linear(64, 4), to=tcgemm.nn.PackedLinear, group_size=value
    ),
    "nn.Float8Linear history": lambda value: tcgemm.nn.Float8Linear(4, 4, history=value),
    "nn.SparseLinear24 refresh_every": lambda value: tcgemm.nn.SparseLinear24(
        4, 4, learns=True, refresh_every=value
    ),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    function, option = name.split()
    for value, mend in ((64.0, "64"), (0.5, "an int"), ("64", "an int"), (True, "an int")):
        text = error_message(lambda value=value: INTEGERS[name](value), TypeError)
        expected = f"tcgemm.{function}: {option} is {value!r}, but it must be an int; pass {mend}."
        assert text == expected
    for value in (64, np.int64(64)):
        INTEGERS[name](value)


NUMBERS = sorted(WAYS.keys() - {"quantized_linear"})


@pytest.mark.parametrize("way", NUMBERS)
def test_factors_are_constants(way):
    for name in ("alpha", "beta")[: 1 + ("addmm" in way)]:
        for factor in (torch.tensor(2.0), np.float32(2), np.int64(2), 2):
            WAYS[way](**{name: factor})
        leaf = torch.tensor(2.0, requires_grad=True)
        text = error_message(lambda name=name: WAYS[way](**{name: leaf}))  # noqa: B023
        assert text.startswith(f"tcgemm.{way.split()[0]}: {name} needs a gradient, but alpha and")
        assert text.endswith(f"pass {name}.detach(), or multiply the tensors by it.")
        for wrong, shown in ((2 + 0j, r"(2+0j)"), (torch.ones(2), "a tensor of shape (2,)")):
            text = error_message(lambda name=name: WAYS[way](**{name: wrong}), TypeError)  # noqa: B023
            assert f": {name} is {shown}, but it must be a number; pass a float" in text


def test_factors_with_tangents_and_transforms():
    def product(alpha):
        return tcgemm.mm(A, B, alpha=alpha)

    gradient = torch.func.grad(lambda alpha: product(alpha).sum())
    for transform in (gradient, torch.func.jacrev(product)):
        text = error_message(lambda transform=transform: transform(torch.tensor(2.0)))
        assert text.startswith("tcgemm.mm: alpha needs a gradient")
    with pytest.raises(RuntimeError, match="alpha needs a gradient"):
        torch.func.jvp(product, (torch.tensor(2.0),), (torch.tensor(1.0),))


def test_the_same_value_of_another_type_is_refused_too():
    tcgemm.mm(A, B, alpha=2.0, batch_invariant=True)
    assert "must be a number" in error_message(lambda: tcgemm.mm(A, B, alpha=2 + 0j), TypeError)
    text = error_message(lambda: tcgemm.mm(A, B, alpha=2.0, batch_invariant=1.0), TypeError)
    assert "batch_invariant is 1.0" in text


def test_a_tensor_factor_is_read_at_each_call():
    alpha = torch.tensor(2.0)
    tcgemm.mm(A, B, alpha=alpha)
    alpha.fill_(3.0)
    torch.testing.assert_close(tcgemm.mm(A, B, alpha=alpha), 3 * (A @ B))


@pytest.mark.parametrize("name", ["explain", "check_layout"])
def test_a_device_is_the_name_of_a_gpu(name):
    for device in (torch.device("cuda"), 0):
        text = error_message(lambda device=device: CALLS[name](device=device), TypeError)
        assert text.startswith(f"tcgemm.{name}: device is {device!r}, but it must be a str or None")
        assert '"H200"' in text
    assert "kernel is 5" in error_message(lambda: CALLS[name](kernel=5), TypeError)


@pytest.mark.parametrize("name", ["mm", "linear", "explain"])
def test_a_model_in_place_of_a_tensor(name):
    model = torch.nn.Linear(4, 5)
    argument = "weight" if name == "linear" else "b"
    assert error_message(lambda: getattr(tcgemm, name)(A, model), TypeError) == (
        f"tcgemm.{name}: {argument} must be a torch.Tensor, but is Linear, a module; pass one of "
        "its tensors, such as its weight."
    )


@pytest.mark.parametrize("name", ["mm", "matmul", "addmm", "linear"])
def test_a_scale_that_was_not_transposed(name):
    x8, scale = tcgemm.quantize(X, torch.float8_e4m3fn, "row")
    w8, scale_w = tcgemm.quantize(WEIGHT, torch.float8_e4m3fn, "row")
    first = (C,) if name == "addmm" else ()
    second = w8 if name == "linear" else w8.t()
    function = getattr(tcgemm, name)
    text = error_message(lambda: function(*first, x8, second, scale_a=scale, scale_b=scale_w))
    assert text.startswith(f"tcgemm.{name}: scale_b must have one element or shape (1, 5)")
    assert text.endswith("but has (5, 1); pass scale_b.t().")
    function(*first, x8, second, scale_a=scale, scale_b=scale_w.t())
    text = error_message(lambda: function(*first, x8, second, scale_a=scale.t()))
    assert text.endswith("pass scale_a.t().")


def test_scales_of_batches_and_blocks_that_were_not_transposed():
    a, scale_a = tcgemm.quantize(torch.randn(2, 4, 256), torch.float8_e4m3fn, "1x128")
    b, scale_b = tcgemm.quantize(torch.randn(2, 6, 256), torch.float8_e4m3fn, "128x128")
    text = error_message(lambda: tcgemm.bmm(a, b.mT, scale_a=scale_a, scale_b=scale_b))
    assert text.startswith("tcgemm.bmm: ") and text.endswith("pass scale_b.mT.")
    text = error_message(lambda: tcgemm.bmm(a, b.mT, scale_a=scale_a.mT, scale_b=scale_b.mT))
    assert text.endswith("pass scale_a.mT.")


def test_every_error_names_the_function_that_was_called():
    """scaled_mm computes for all of them."""
    one = torch.ones(())
    for name, call in CALLS.items():
        if name not in ("explain", "check_layout", "quantized_linear"):
            text = error_message(lambda call=call: call(scale_a=one.double()))
            assert text.startswith(f"tcgemm.{name}: scale_a is torch.float64")
            leaf = one.clone().requires_grad_()
            text = error_message(lambda call=call, leaf=leaf: call(scale_a=leaf))
            assert text.startswith(f"tcgemm.{name}: scale_a needs a gradient")


@pytest.mark.parametrize(
    "wrong", ["out_dtype as a strange str", "activation as a function", "precision"]
)
@pytest.mark.parametrize("way", ["mm", "mm with scales"])
def test_under_compile(way, wrong):
    options, expected = WRONG[wrong]
    compiled = torch.compile(lambda: WAYS[way](**options), backend="eager")
    assert error_message(compiled, TypeError).startswith(f"tcgemm.mm: {expected}")
    whole = torch.compile(lambda: WAYS[way](**options), backend="eager", fullgraph=True)
    text = error_message(whole, torch._dynamo.exc.Unsupported)
    assert "tcgemm.mm: " in text


@pytest.mark.parametrize("way", WAYS)
def test_the_error_of_another_keeps_its_cause(way):
    """A dispatch mode, or an allocator, may raise while an operator runs."""

    class Fails(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise RuntimeError("of the mode") from ValueError("why")

    with Fails(), pytest.raises(RuntimeError, match="of the mode") as excinfo:
        WAYS[way]()
    assert isinstance(excinfo.value.__cause__, ValueError)
