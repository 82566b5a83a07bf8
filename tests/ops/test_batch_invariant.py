"""batch_invariant as an argument and as a context: every product of a call gets it, also in the
backward and in compiled functions. tests/plan and tests/gpu have what it does.
"""

import threading

import pytest
import torch

import tcgemm
from tcgemm.ops import invariance

from support.calls import Recorder
from support.error_asserts import error_message
from support.invariance import Compiled, is_product, recorded


def operands(dtype=torch.float32):
    a = torch.randn(4, 16, dtype=dtype, requires_grad=True)
    return a, torch.randn(16, 8, dtype=dtype, requires_grad=True)


CALLS = {
    "mm": lambda a, b, **options: tcgemm.mm(a, b, **options),
    "matmul": lambda a, b, **options: tcgemm.matmul(a, b, **options),
    "bmm": lambda a, b, **options: tcgemm.bmm(a[None], b[None], **options),
    "addmm": lambda a, b, **options: tcgemm.addmm(a[:, :8], a, b, **options),
    "baddbmm": lambda a, b, **options: tcgemm.baddbmm(a[:, :8], a[None], b[None], **options),
    "linear": lambda a, b, **options: tcgemm.linear(a, b.t(), **options),
    "scaled": lambda a, b, **options: tcgemm.mm(a, b, scale_a=torch.ones(()), **options),
    "activated": lambda a, b, **options: tcgemm.mm(a, b, activation="gelu", **options),
    "quantized": lambda a, b, **options: tcgemm.quantized_linear(a, b.t(), **options),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_argument_reaches_the_forward_and_both_gradients(call):
    a, b = operands()
    products = recorded(lambda: call(a, b, batch_invariant=True).sum().backward())
    assert len(products) >= 3 and all(products)
    assert not any(recorded(lambda: call(a, b).sum().backward()))


def test_the_gradient_of_the_second_operand_alone_has_one_slice():
    def note(func, args, kwargs):
        return [(args[0].shape[-1], kwargs.get("one_slice", False))] if is_product(func) else []

    x, w = torch.randn(5, 16, requires_grad=True), torch.randn(8, 16, requires_grad=True)
    for invariant in (False, True):
        out = tcgemm.linear(x, w, batch_invariant=invariant)
        with Recorder(note) as recorder:
            out.sum().backward()
        # K of the gradient of x is 8, and of the gradient of w it is the number of rows.
        assert sorted(recorder.rows) == [(5, invariant), (8, False)]


def test_second_derivatives_and_forward_mode_have_it():
    a, b = operands()

    def twice():
        out = tcgemm.mm(a, b, batch_invariant=True).square().sum()
        (first,) = torch.autograd.grad(out, a, create_graph=True)
        first.square().sum().backward()

    products = recorded(twice)
    assert len(products) >= 5 and all(products)
    x, w = (tensor.detach() for tensor in (a, b))
    run = lambda x: tcgemm.mm(x, w, batch_invariant=True)  # noqa: E731
    assert all(recorded(lambda: torch.func.jvp(run, (x,), (x,))))
    assert all(recorded(lambda: torch.func.vmap(run)(x[None])))


def test_a_product_inside_the_context_keeps_it_for_its_gradients():
    a, b = operands()
    for activation in (None, "silu"):
        with tcgemm.batch_invariant():
            out = tcgemm.mm(a, b, activation=activation).sum()
        products = recorded(out.backward)
        assert len(products) == 2 and all(products)


def test_the_context_counts_and_ends_with_errors():
    assert not invariance.active
    with tcgemm.batch_invariant():
        with pytest.raises(ValueError, match="inside"), tcgemm.batch_invariant():
            raise ValueError("inside")
        assert invariance.active
    assert not invariance.active


def test_the_context_holds_for_other_threads():
    states = []
    a = torch.empty(64, 32768, dtype=torch.bfloat16)

    def ask():
        states.append((invariance.active, tcgemm.explain(a, a.t(), device="H200").slices))

    for inside in (True, False):
        thread = threading.Thread(target=ask)
        if inside:
            with tcgemm.batch_invariant():
                thread.start(), thread.join()
        else:
            thread.start(), thread.join()
    assert states[0] == (True, 16) and states[1][0] is False and states[1][1] == 32


def test_compiled_with_the_argument():
    torch._dynamo.reset()
    compiled = Compiled(lambda a, b: tcgemm.mm(a, b, batch_invariant=True))
    assert compiled.run(*operands()) == [True] * 3


def test_compiled_in_the_context():
    """Once for outside and once for inside; the graphs are not mixed up."""
    torch._dynamo.reset()
    compiled, pair = Compiled(lambda a, b: tcgemm.mm(a, b)), operands()
    assert compiled.run(*pair) == [False] * 3
    with tcgemm.batch_invariant():
        assert compiled.run(*pair) == [True] * 3
        assert compiled.run(*pair) == []
    assert compiled.run(*pair) == []


def test_the_context_in_a_compiled_function():
    torch._dynamo.reset()

    def both(a, b):
        with tcgemm.batch_invariant():
            inside = tcgemm.linear(a, b.t())
        return inside + tcgemm.addmm(inside, a, b)

    compiled = Compiled(both)
    assert sorted(compiled.run(*operands())) == [False] * 3 + [True] * 3
    assert not invariance.active


def test_quantized_linear_compiled_in_the_context():
    torch._dynamo.reset()
    compiled = Compiled(lambda a, b: tcgemm.quantized_linear(a, b.t()))
    with tcgemm.batch_invariant():
        assert all(compiled.run(*operands()))


def test_a_sparse_operand():
    w = tcgemm.compress24(torch.randn(32, 64).half(), prune=True)
    x = torch.randn(8, 64).half().requires_grad_()
    products = recorded(
        lambda: tcgemm.linear(x, w, batch_invariant=True, activation="gelu").sum().backward()
    )
    assert len(products) >= 2 and all(products)
    for activation in (None, "relu"):
        options = {"activation": activation, "batch_invariant": True}
        with torch.no_grad():
            assert torch.equal(
                tcgemm.linear(x, w, **options), tcgemm.linear(x, w, activation=activation)
            )


def test_the_same_numbers_on_the_cpu():
    a, b = operands()
    assert torch.equal(tcgemm.mm(a, b, batch_invariant=True), tcgemm.mm(a, b))
    out = torch.empty(4, 8)
    with torch.no_grad():
        tcgemm.mm(a, b, batch_invariant=True, out=out)
    assert torch.equal(out, tcgemm.mm(a, b))


def test_a_wrong_value_is_named():
    a, b = operands()
    sentence = "tcgemm.mm: batch_invariant is 'yes', but it must be True or False."
    assert error_message(lambda: tcgemm.mm(a, b, batch_invariant="yes"), TypeError) == sentence


def test_one_scale_of_all_rows_is_refused():
    a, b = operands()
    assert error_message(
        lambda: tcgemm.quantized_linear(a, b.t(), granularity="tensor", batch_invariant=True)
    ) == (
        'tcgemm.quantized_linear: batch_invariant is True with the granularity "tensor", but then '
        "the scale of x comes from all rows, and so do the bits of each row; pass the granularity "
        '"row" or "128x128", or leave batch_invariant out.'
    )


@pytest.mark.parametrize("granularity", ["row", "1x128"])
def test_scales_of_rows_do_not_depend_on_other_rows(granularity):
    """QuantLinear relies on it: quantize finds the scale of a row from that row."""
    x = torch.randn(37, 300)
    for dtype in (torch.float8_e4m3fn, torch.int8)[: 1 if granularity == "1x128" else 2]:
        values, scale = tcgemm.quantize(x, dtype, granularity)
        for rows in (slice(0, 1), slice(5, 22)):
            some, some_scale = tcgemm.quantize(x[rows].clone(), dtype, granularity)
            assert torch.equal(some.view(torch.uint8), values[rows].view(torch.uint8))
            assert torch.equal(some_scale, scale[rows])
