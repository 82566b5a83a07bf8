"""Every operator on the second GPU while the first is current, and never both in one call."""

import pytest
import torch

import tcgemm

from support import cases, dtype_matrix, reference
from support.cases import BF16, E4M3, F32, LAYOUTS, S8, S32
from support.dtype_matrix import all_operands

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
HERE, THERE = "cuda:0", "cuda:1"
EVERY = pytest.mark.parametrize(
    "types",
    [
        pytest.param(types, marks=getattr(pytest.mark, types.marks), id=str(types))
        for types in dtype_matrix.gemm_types("cuda")
    ],
)


def move(value, device=THERE):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: move(item, device) for name, item in value.items()}
    return tuple(move(item, device) for item in value) if isinstance(value, tuple) else value


def assert_there(result, expected):
    """On the second GPU, with the bits of the first, and the current device is what it was."""
    assert torch.cuda.current_device() == 0
    if isinstance(expected, tuple):
        for one, other in zip(result, expected, strict=True):
            assert_there(one, other)
        return
    assert result.device == torch.device(THERE)
    assert torch.equal(result.cpu(), expected.cpu())


@EVERY
def test_products(types):
    """Operands are read as they are, copied, transposed or gathered; with every other tensor."""
    before = torch.cuda.memory_allocated(0)
    for layout in LAYOUTS:
        for m, n, k in ((300, 200, 400), (301, 199, 333), (33, 17, 30)):
            a, b = types.operands(layout, m, n, k, device=THERE, whole=True)
            out = tcgemm.mm(a, b, **types.options)
            assert out.device == a.device
            reference.assert_exact(out, reference.exact(a, b, **types.options))
            into = cases.empty("transposed_odd", (m, n), dtype=out.dtype, device=THERE)
            assert torch.equal(tcgemm.mm(a, b, **types.options, out=into), out)
            del a, b, out, into
    assert torch.cuda.memory_allocated(0) == before
    for out_dtype in types.outs:
        a, b, options = all_operands(types, 150, 130, 300, out_dtype)
        copies = move((a, b, options))
        expected = torch.ops.tcgemm.scaled_mm(a, b, **options)
        assert_there(torch.ops.tcgemm.scaled_mm(copies[0], copies[1], **copies[2]), expected)
        if out_dtype != S32:
            expected = torch.ops.tcgemm.scaled_mm_amax(a, b, **options)
            assert_there(
                torch.ops.tcgemm.scaled_mm_amax(copies[0], copies[1], **copies[2]), expected
            )


@EVERY
def test_every_function(types):
    a, b = types.operands("NN", 65, 40, 70, device=HERE, batch=(3,))
    c = types.addend(65, 40, out=types.outs[0], device=HERE)
    for call in (
        lambda a, b, c: tcgemm.mm(a[0], b[0], **types.options),
        lambda a, b, c: tcgemm.bmm(a, b, **types.options),
        lambda a, b, c: tcgemm.matmul(a, b[1], **types.options),
        lambda a, b, c: tcgemm.matmul(a[0, 0], b, **types.options),
        lambda a, b, c: tcgemm.addmm(c, a[0], b[0], beta=2.0, **types.options),
        lambda a, b, c: tcgemm.linear(a, b[0].mT, residual=c, **types.options),
        lambda a, b, c: torch.ops.tcgemm._gemm(a, b, c, **types.options),
        lambda a, b, c: tcgemm.mm(a[0, :, :0], b[0, :0], **types.options),
        lambda a, b, c: tcgemm.mm(a[0, :0], b[0], **types.options),
    ):
        assert_there(call(*move((a, b, c))), call(a, b, c))


def test_quantize():
    x = torch.randn(300, 260, device=HERE)
    for granularity in dtype_matrix.GRANULARITIES:
        for dtype in (E4M3, S8):
            for view in (x, x.t(), x.bfloat16()[:, 1:]):
                expected = tcgemm.quantize(view, dtype, granularity)
                assert_there(tcgemm.quantize(move(view), dtype, granularity), expected)


@pytest.mark.sm89
def test_modules_and_gradients():
    x = torch.randn(40, 64, device=HERE, dtype=BF16)
    plain = torch.nn.Linear(64, 32, device=HERE, dtype=BF16)
    layers = [tcgemm.nn.Linear(64, 32, device=HERE, dtype=BF16)]
    layers += [tcgemm.nn.QuantLinear.from_linear(plain)]
    for layer in layers:
        results = []
        for device in (HERE, THERE):
            layer = layer.to(device)
            leaf = x.detach().to(device).requires_grad_()
            out = layer(leaf)
            out.float().square().sum().backward()
            results.append((out.detach(), leaf.grad))
        assert_there(results[1], results[0])


@EVERY
def test_streams_and_graphs_there(types):
    with torch.cuda.device(1):
        operands = move(all_operands(types, 200, 150, 333, types.outs[0]))

        def product():
            return torch.ops.tcgemm.scaled_mm(operands[0], operands[1], **operands[2])

        expected = product()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            assert torch.equal(product(), expected)
        torch.cuda.synchronize()
        graph, out = cases.graph_of(product)
        out.fill_(cases.poison(out.dtype))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected)
    # And a product on the first GPU while the current stream of the second GPU is another one.
    assert torch.cuda.current_device() == 0
    copies = move(operands, HERE)
    out = torch.ops.tcgemm.scaled_mm(copies[0], copies[1], **copies[2])
    assert torch.equal(out.cpu(), expected.cpu())


@pytest.mark.sm89
def test_operands_on_two_gpus_are_refused():
    """Whichever tensor is the one elsewhere; and right calls go on."""
    a, b = dtype_matrix.GemmTypes(E4M3, E4M3, F32).operands(
        "TN", 64, 32, 48, device=HERE, whole=True
    )
    line, matrix = torch.zeros(32, device=HERE), torch.zeros(64, 32, device=HERE)
    one = torch.ones((), device=HERE)
    terms = {"bias": line, "residual": matrix, "c": matrix, "scale_a": one, "scale_b": one}
    terms["scale_out"] = one
    scaled_mm = torch.ops.tcgemm.scaled_mm
    expected = scaled_mm(a, b, **terms)
    calls = [lambda: tcgemm.mm(a, move(b)), lambda: tcgemm.mm(move(a), b)]
    calls += [
        lambda name=name: scaled_mm(a, b, **(terms | {name: move(terms[name])})) for name in terms
    ]
    into = torch.empty_like(expected)
    calls += [lambda: tcgemm.mm(a, b, out=move(into))]
    calls += [lambda: tcgemm.mm(move(a), move(b), out=into)]
    ints = [t.to(S8) for t in (a.float(), b.float())]
    zero = torch.zeros((), dtype=S32, device=THERE)
    calls += [lambda name=name: tcgemm.mm(*ints, **{name: zero}) for name in ("zero_a", "zero_b")]
    calls += [
        lambda: tcgemm.addmm(move(matrix), a, b),
        lambda: tcgemm.linear(a, b.t(), move(line)),
    ]
    calls += [lambda: tcgemm.bmm(a[None], move(b)[None]), lambda: tcgemm.matmul(a, move(b))]
    for call in calls:
        with pytest.raises(RuntimeError, match="must be on one device"):
            call()
        assert torch.equal(scaled_mm(a, b, **terms), expected)
    assert torch.cuda.current_device() == 0
