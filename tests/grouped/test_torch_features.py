"""Grouped products under torch.compile, export, fake tensors, autocast, torch.func and counters."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode

import tcgemm

from support import cases
from support.cases import BF16, F16, F32, F64
from support.grouped import KINDS, RAGGED, UNEVEN, K, M, N, ends_of, exact, make_call

grouped_mm = tcgemm.grouped_mm
OPS = torch.ops.tcgemm


def arguments(call):
    return call.a, call.b, call.offs, call.bias, call.residual


def needing_gradients(call):
    return call._replace(a=call.a.requires_grad_(), b=call.b.requires_grad_())


SMALL = {"m": 3, "n": 5, "k": 4}


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("addends", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_opcheck(kind, addends, dtype):
    addend = F32 if addends else None
    call = make_call(kind, ((3, 0, 2), 2), dtype, bias=addend, residual=addend, **SMALL)
    options = {"activation": "gelu" if addends else None, "alpha": 0.5}
    opcheck(OPS.grouped_mm.default, arguments(needing_gradients(call)), options)
    tensors = arguments(call._replace(a=call.a.detach(), b=call.b.detach()))
    opcheck(OPS.grouped_mm.with_z, tensors, {"activation": "silu"})
    out = torch.zeros(call.shape, dtype=dtype)
    opcheck(OPS.grouped_mm.out, tensors, {**options, "out": out})
    if not addends:
        opcheck(OPS.grouped_mm.out, tensors, {"out": out, "accumulate": True})


@pytest.mark.parametrize("kind", KINDS)
def test_compile_in_one_graph(kind, device):
    call = needing_gradients(make_call(kind, UNEVEN, BF16, device, bias=BF16, residual=BF16))

    def function(a, b, offs, bias, residual):
        return grouped_mm(a, b, offs=offs, bias=bias, residual=residual, activation="silu")

    compiled, operators = cases.compiled(function)
    result, expected = compiled(*arguments(call)), function(*arguments(call))
    assert operators == ["tcgemm.grouped_mm.default"]
    assert torch.equal(result, expected)
    g = torch.randn(result.shape, device="cpu").to(result)
    for grad, other in zip(
        torch.autograd.grad(result, (call.a, call.b), g),
        torch.autograd.grad(expected, (call.a, call.b), g),
        strict=True,
    ):
        assert torch.equal(grad, other)


@pytest.mark.parametrize("kind", KINDS)
def test_inductor_with_sizes_that_change(kind):
    def loss(a, b, offs):
        return grouped_mm(a, b, offs=offs, activation="gelu").square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True)
    for lengths in ((5, 0, 9), (2, 11, 4, 8)):
        call = needing_gradients(make_call(kind, (lengths, 3), F32, **SMALL))
        tensors = (call.a, call.b)
        result = torch.autograd.grad(compiled(*arguments(call)[:3]), tensors)
        expected = torch.autograd.grad(loss(*arguments(call)[:3]), tensors)
        for grad, other in zip(result, expected, strict=True):
            torch.testing.assert_close(grad, other)


@pytest.mark.parametrize("kind", KINDS)
def test_accumulate_in_a_compiled_function(kind, device):
    call = make_call(kind, UNEVEN, BF16, device, largest=2)
    out = torch.ones(call.shape, device=device)

    @torch.compile(fullgraph=True)
    def add(a, b, offs, out):
        grouped_mm(a, b, offs=offs, out=out, accumulate=True)
        return out * 2

    twice = add(*arguments(call)[:3], out)
    assert torch.equal(out, exact(call, F32) + 1) and torch.equal(twice, out * 2)


def test_export():
    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3, 5, 4))

        def forward(self, x, offs):
            return grouped_mm(x, self.weight.mT, offs=offs)

    model, offs = Experts(), ends_of([2, 0, 4])
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(
        model, (torch.randn(8, 4), offs), dynamic_shapes={"x": {0: rows}, "offs": None}
    )
    x = torch.randn(11, 4)
    assert torch.equal(program.module()(x, offs), model(x, offs))


@pytest.mark.parametrize("kind", KINDS)
def test_fake_tensors_have_no_values(kind):
    call = make_call(kind, UNEVEN, BF16, bias=F32, residual=F32)
    with FakeTensorMode() as mode:
        fakes = [None if x is None else mode.from_tensor(x) for x in arguments(call)]
        fakes[0].requires_grad_()
        out = OPS.grouped_mm(*fakes, activation="silu", out_dtype=F32)
        assert out.shape == call.shape and out.dtype == F32 and out.is_contiguous()
        assert torch.autograd.grad(out.sum(), fakes[0])[0].shape == call.a.shape


def test_a_graph_with_symbols_has_the_sizes_as_expressions():
    def function(a, b, offs):
        return grouped_mm(a, b, offs=offs)

    call = make_call("depth", UNEVEN, F32)
    graph = make_fx(function, tracing_mode="symbolic")(call.a, call.b, call.offs)
    other = make_call("depth", ((3, 0, 8, 2, 1), 1), F32, m=M + 1, n=N + 2)
    assert torch.equal(graph(*arguments(other)[:3]), function(*arguments(other)[:3]))


def test_a_wrong_call_fails_while_it_is_traced():
    call = make_call("rows", UNEVEN, F32)
    with pytest.raises(Exception, match="offs has 3 ends of groups, but b of shape"):
        torch.compile(lambda a, b, o: grouped_mm(a, b, offs=o), fullgraph=True, backend="eager")(
            call.a.to("meta"), call.b.to("meta"), call.offs[1:].to("meta")
        )


@pytest.mark.parametrize("kind", KINDS)
def test_autocast(kind, device):
    call = make_call(kind, UNEVEN, F32, device, bias=F32, residual=F32)
    call = call._replace(a=call.a.requires_grad_(), b=call.b.to(BF16).requires_grad_())
    with torch.autocast(device, BF16):
        out = call.run(grouped_mm, activation="silu")
    assert out.dtype == BF16
    cast = call._replace(a=call.a.detach().to(BF16), bias=call.bias.to(BF16))
    cast = cast._replace(residual=call.residual.to(BF16))
    assert torch.equal(out, cast.run(grouped_mm, activation="silu"))
    out.sum().backward()
    assert call.a.grad.dtype == F32 and call.b.grad.dtype == BF16
    with torch.autocast(device, BF16):
        compiled, _ = cases.compiled(lambda a, b, offs: grouped_mm(a, b, offs=offs))
        assert compiled(call.a, call.b, call.offs).dtype == BF16


@pytest.mark.parametrize("kind", KINDS)
def test_func_grad_and_jvp(kind):
    call = make_call(kind, ((2, 0, 3), 1), F64, **SMALL)

    def loss(a, b):
        return grouped_mm(a, b, offs=call.offs, activation="gelu").sin().sum()

    a, b = call.a.clone().requires_grad_(), call.b.clone().requires_grad_()
    expected = torch.autograd.grad(loss(a, b), (a, b))
    for grad, other in zip(torch.func.grad(loss, (0, 1))(call.a, call.b), expected, strict=True):
        torch.testing.assert_close(grad, other)
    tangent = torch.randn_like(call.a)
    _, directional = torch.func.jvp(lambda a: loss(a, call.b), (call.a,), (tangent,))
    torch.testing.assert_close(directional, (expected[0] * tangent).sum())
    hessian = torch.func.hessian(lambda a: loss(a, call.b))(call.a)
    torch.testing.assert_close(
        hessian, torch.autograd.functional.hessian(lambda a: loss(a, call.b), call.a)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_computes_each_example(kind):
    calls = [make_call(kind, (lengths, 1), F32, bias=F32, **SMALL) for lengths in ((2, 3), (5, 0))]
    tensors = [
        None if x is None else torch.stack([x, y])
        for x, y in zip(*map(arguments, calls), strict=True)
    ]
    a, b, offs, bias, _ = tensors
    dims = (0, 0, None if offs is None else 0, 0)

    def function(a, b, offs, bias):
        return grouped_mm(a, b, offs=offs, bias=bias)

    result = torch.vmap(function, dims)(a, b, offs, bias)
    expected = torch.stack([call.run(grouped_mm) for call in calls])
    assert torch.equal(result, expected)
    assert torch.equal(
        torch.vmap(function, (0, None, None, None))(
            a, b[0], None if offs is None else offs[0], bias[0]
        )[0],
        expected[0],
    )


def test_out_under_vmap_is_refused():
    call = make_call("rows", UNEVEN, F32)
    with pytest.raises(RuntimeError, match=r"out= does not work under torch\.vmap"):
        torch.vmap(lambda a: call._replace(a=a).run(grouped_mm, out=torch.empty(call.shape)))(
            torch.stack([call.a, call.a])
        )


@pytest.mark.parametrize("kind", KINDS)
def test_flops_count_every_index(kind):
    call = make_call(kind, UNEVEN, BF16)
    call = call._replace(b=call.b.requires_grad_(), a=call.a.requires_grad_())
    extent, groups = 164, 4
    one = {
        "rows": 2 * extent * N * K,
        "columns": 2 * M * extent * K,
        "depth": 2 * M * N * extent,
        "batch": 2 * groups * M * N * K,
    }[kind]
    with FlopCounterMode(display=False) as counter:
        out = call.run(grouped_mm)
    assert counter.get_total_flops() == one
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    assert counter.get_total_flops() == 2 * one


def test_batch_invariant_context_reaches_a_graph():
    call = make_call("rows", UNEVEN, F32)
    seen = []

    def backend(graph, _inputs):
        seen.extend(n.kwargs for n in graph.graph.nodes if "grouped_mm" in str(n.target))
        return graph

    with tcgemm.batch_invariant():
        torch.compile(lambda a, b, o: grouped_mm(a, b, offs=o), backend=backend)(
            *arguments(call)[:3]
        )
    assert [kwargs.get("batch_invariant") for kwargs in seen] == [True]


@pytest.mark.parametrize("name", ["float16", "torch.float16"])
def test_out_dtype_as_a_word(name):
    assert make_call("rows", UNEVEN, BF16).run(grouped_mm, out_dtype=name).dtype == F16


def test_a_tensor_subclass_gets_the_call():
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func, sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs)

    call = make_call("rows", UNEVEN, F32)
    watched = call._replace(b=call.b.as_subclass(Watching)).run(grouped_mm)
    assert seen[0][0] is grouped_mm and "accumulate" in seen[0][1]
    assert torch.equal(watched.as_subclass(torch.Tensor), call.run(grouped_mm))


@pytest.mark.parametrize("kind", RAGGED)
def test_checkpointing(kind):
    call = needing_gradients(make_call(kind, UNEVEN, F32))
    plain = torch.autograd.grad(call.run(grouped_mm).sum(), (call.a, call.b))
    checkpointed = torch.utils.checkpoint.checkpoint(call.run, grouped_mm, use_reentrant=False)
    for grad, other in zip(
        torch.autograd.grad(checkpointed.sum(), (call.a, call.b)), plain, strict=True
    ):
        assert torch.equal(grad, other)
