"""What only a GPU shows of other dtypes, scales, amax and quantize: the CPU's definition beside it,
streams, graphs, dependent launches, memory, and tensors of more than 2^31 elements of a byte.
"""

import pytest
import torch

import tcgemm

from support import cases, dtype_matrix, reference
from support.cases import BF16, CHUNK, E4M3, E5M2, F16, F32, F64, FP8, LARGE, S8, S32, U8
from support.cpu_model import narrowed
from support.dtype_matrix import everything

pytestmark = pytest.mark.gpu

EVERY = pytest.mark.parametrize(
    "types",
    [
        pytest.param(types, marks=getattr(pytest.mark, types.marks), id=str(types))
        for types in dtype_matrix.gemm_types("cuda")
    ],
)
# One of each way to the tensor cores: copied, converted, transposed, promoted, scaled, summed.
FEW = pytest.mark.parametrize(
    "types",
    [
        pytest.param(types, marks=getattr(pytest.mark, types.marks), id=str(types))
        for types in dtype_matrix.gemm_types("cuda")
        if types.a == types.b and types.a in (F32, F64, E4M3, S8)
    ],
)


def on_cpu(given):
    return {
        name: value.cpu() if isinstance(value, torch.Tensor) else value
        for name, value in given.items()
    }


# The definition.


@EVERY
def test_gpu_and_cpu_agree(types):
    """Integers in every bit, whatever they are; others within the bounds of both."""
    for out in types.outs:
        a, b, given = everything(types, 150, 130, 300, out)
        result = torch.ops.tcgemm.scaled_mm(a, b, **given).cpu()
        expected = torch.ops.tcgemm.scaled_mm(a.cpu(), b.cpu(), **on_cpu(given))
        assert result.dtype == expected.dtype
        if out == S32:
            assert torch.equal(result, expected)
        elif types.integer:
            # Sums modulo 2^32 are the same; the epilogue may contract to FMAs.
            difference = (result.double() - expected.double()).abs()
            unit = 2 * reference.UNIT_ROUNDOFF.get(out, 0.0) + 2.0**-20
            near = difference <= unit * expected.double().abs() + 1.0
            assert ((result == expected) | near).all()
        else:
            value, bound = reference.evaluate(a, b, **given)
            assert reference.largest_ratio(result, value.cpu(), bound.cpu()) <= 1
            assert reference.largest_ratio(expected, value.cpu(), bound.cpu()) <= 1


@pytest.mark.parametrize("dtype", (*FP8, S8), ids=cases.NAMES.get)
@pytest.mark.parametrize("granularity", dtype_matrix.GRANULARITIES)
def test_quantize_gives_the_bits_of_the_cpu(granularity, dtype):
    """Random bits: subnormal numbers, NaN and Inf among them; and sizes around every edge."""
    words = torch.randint(-(2**31), 2**31, (515, 2070), dtype=torch.int64).to(S32).view(F32)
    x = torch.randn(515, 2070) * 2.0 ** torch.randint(-130, 100, (515, 2070))
    for source in (words, x, words.to(BF16), x.to(F16), torch.randn(4, 130, 700)):
        for view in (source, source[..., :1], source[..., 3:260, 1:130], source.mT):
            values, scale = tcgemm.quantize(view.cuda(), dtype, granularity)
            expected, expected_scale = tcgemm.quantize(view, dtype, granularity)
            assert torch.equal(scale.cpu(), expected_scale)
            assert torch.equal(values.cpu().view(U8), expected.view(U8))


# Order: streams, dependent launches, graphs.


@FEW
@pytest.mark.parametrize("size", (512, 511))
def test_runs_on_the_current_stream(types, size):
    """Its inputs, and its scales, are still to be written there when the product is asked for."""
    stream = torch.cuda.Stream()
    out = types.outs[-1]
    a, b, given = everything(types, size, size, size, out)
    new, _, others = everything(types, size, size, size, out)
    tensors = [name for name, value in given.items() if isinstance(value, torch.Tensor)]
    amax_too = torch.ops.tcgemm.scaled_mm_amax
    expected, amax = amax_too(new, b, **others)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        amax_too(a, b, **given)  # the stream's memory pool is warm now
        torch.cuda.synchronize()
        cases.spin()
        a.copy_(new)
        for name in tensors:
            given[name].copy_(others[name])
        result, largest = amax_too(a, b, **given)
        assert not stream.query(), "the call waited for the GPU"
    stream.synchronize()
    assert torch.equal(result, expected)
    assert torch.equal(largest, amax)


@pytest.mark.sm89
def test_a_chain_of_dependent_passes():
    """quantize, multiply, amax, requantise, multiply: each reads what was just written, with
    nothing in between; the same bits as with a pause after every step."""
    x = torch.randn(1500, 1100, device="cuda")
    weights = [tcgemm.quantize(torch.randn(1100, 1100, device="cuda"), E4M3, "128x128")]
    weights += [tcgemm.quantize(torch.randn(1100, 1100, device="cuda"), S8, "row")]

    def chain(pause):
        found, y = [], x
        for step in range(40):
            weight, scale = weights[step % 2]
            granularity = ("1x128", "row")[step % 2]
            values, scale_y = tcgemm.quantize(y, weight.dtype, granularity)
            pause()
            given = {"scale_a": scale_y, "scale_b": scale.t(), "out_dtype": F32, "alpha": 0.03}
            y, amax = tcgemm.linear(values, weight, **given, amax=True)
            pause()
            narrow = {"scale_out": 100 / amax, "out_dtype": S8 if step % 2 else E5M2}
            small = tcgemm.linear(values, weight, **(given | narrow))
            pause()
            found += [y, amax, small.float()]
            y = y + 1e-3 * small.float()
        return found

    expected = chain(torch.cuda.synchronize)
    for _ in range(3):
        for mine, right in zip(chain(lambda: None), expected, strict=True):
            assert torch.equal(mine, right)


@FEW
def test_dependent_copies_and_products(types):
    """Odd sizes: a copy, sums and a product a call, over buffers that the last call just read."""
    a, b, given = everything(types, 777, 555, 333, types.outs[0])
    expected = torch.ops.tcgemm.scaled_mm(a, b, **given)
    torch.cuda.synchronize()
    into = torch.empty_like(expected)
    buffer = torch.empty_like(a)
    for _ in range(30):
        buffer.copy_(a)
        torch.ops.tcgemm.scaled_mm.out(buffer, b, **given, out=into)
        buffer.zero_()
        copy = into.clone()
        into.fill_(cases.poison(into.dtype))
        assert torch.equal(copy, expected)


@EVERY
def test_graph_replays_with_new_inputs(types):
    """amax and quantize in it: they are cleared and found anew in every replay."""
    m, n, k = 300, 260, 333
    out = types.outs[-1]
    a, b, given = everything(types, m, n, k, out)
    x = torch.randn(m, k, device="cuda")
    narrow = types.a if types.a in (*FP8, S8) else S8 if types.integer else E5M2

    def work():
        result, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **given)
        plain = tcgemm.mm(a, b, **types.options)
        found = [result, amax, plain]
        for granularity in dtype_matrix.GRANULARITIES:
            found += tcgemm.quantize(x, narrow, granularity)
        requantised = given | {"scale_out": 1 / amax.clamp(min=1e-3)}
        return [*found, torch.ops.tcgemm.scaled_mm(a, b, **requantised)]

    graph, captured = cases.captured(work)
    for step in range(3):
        new_a, new_b, others = everything(types, m, n, k, out)
        a.copy_(new_a)
        b.copy_(new_b)
        x.copy_(torch.randn(m, k) / 4**step)  # smaller ones, so that an old maximum shows
        for name, value in others.items():
            if isinstance(value, torch.Tensor):
                given[name].copy_(value if value.dtype == S32 else value / 4**step)
        for tensor in captured:
            tensor.fill_(cases.poison(tensor.dtype))
        graph.replay()
        torch.cuda.synchronize()
        for mine, right in zip(captured, work(), strict=True):
            assert torch.equal(mine, right)


@EVERY
def test_same_bits_beside_other_work(types):
    a, b, given = everything(types, 1000, 900, 1100, types.outs[0])
    expected = torch.ops.tcgemm.scaled_mm(a, b, **given)
    noise = torch.randn(2048, 2048, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        with torch.cuda.stream(stream):
            noise @ noise
        assert torch.equal(torch.ops.tcgemm.scaled_mm(a, b, **given), expected)
    torch.cuda.synchronize()


@FEW
def test_workspaces_are_given_back(types):
    a, b, given = everything(types, 1023, 1023, 1023, types.outs[0])
    torch.ops.tcgemm.scaled_mm(a, b, **given)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        torch.ops.tcgemm.scaled_mm(a, b, **given)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


# More than 2^31 elements.


def small(dtype, *shape):
    """-1, 0 and 1, made where they are to be."""
    x = torch.empty(shape, dtype=U8, device="cuda").random_(0, 4)
    sign = x.bitwise_and(2)
    x.bitwise_and_(1)
    if dtype == S8:
        return x.view(S8).mul_(1 - sign.view(S8))
    one = 0x38 if dtype == E4M3 else 0x3C
    return x.mul_(one).bitwise_or_(sign.mul_(64)).view(dtype)


BYTES = pytest.mark.parametrize("dtype", (pytest.param(E4M3, marks=pytest.mark.sm89), S8), ids=str)
ARCHES = pytest.mark.parametrize("kernel", ("sm8", pytest.param("sm90a", marks=pytest.mark.sm90)))


@pytest.mark.slow
@ARCHES
@BYTES
@pytest.mark.parametrize("n", (2064, 2049))
def test_results_past_two_to_the_31(free_memory, n, dtype, kernel):
    """Stored in words, or one by one where rows are odd, beside a scale for each row."""
    m, k = 2**20 + 1, 32
    assert m * n > LARGE
    a, b = small(dtype, m, k), small(dtype, k, n)
    scale = 2.0 ** torch.randint(-1, 2, (m, 1)).to("cuda")
    out = torch.empty(m, n, dtype=dtype, device="cuda")
    torch.ops.tcgemm.scaled_mm.out(a, b, scale, kernel_name=kernel, out_dtype=dtype, out=out)
    for first in range(0, m, CHUNK):
        rows = slice(first, first + CHUNK)
        expected = scale[rows] * (a[rows].float() @ b.float())
        reference.assert_exact(out[rows], narrowed(expected, dtype))


@pytest.mark.slow
@ARCHES
@BYTES
@pytest.mark.parametrize("strides", ("contiguous", "odd_pitch", "transposed"))
def test_operands_past_two_to_the_31(free_memory, strides, dtype, kernel):
    """An odd pitch brings in a copy that is as large, the other major is transposed or copied; with
    blocks of scales, or sums for zero points."""
    m, n, k = 2**20 + 8, 16, 2056
    assert m * k > LARGE
    a = cases.empty(strides, (m, k), dtype=dtype, device="cuda")
    a.copy_(small(dtype, m, k))
    b = small(dtype, n, k).t()
    given, scale = {}, torch.ones(m, 1, device="cuda")
    if dtype == S8:
        given["zero_b"] = torch.full((1, n), 3, dtype=S32, device="cuda")
    else:
        scale = 2.0 ** torch.randint(-1, 2, (m, dtype_matrix.blocks(k))).to("cuda")
        given["scale_a"] = scale
    out = torch.ops.tcgemm.scaled_mm(a, b, **given, kernel_name=kernel, out_dtype=F32)
    for first in range(0, m, CHUNK):
        rows = slice(first, first + CHUNK)
        left = a[rows].float() * reference.expand_scale(scale[rows], len(a[rows]), k).float()
        expected = left @ (b.float() - (3 if dtype == S8 else 0))
        reference.assert_exact(out[rows], expected)


@pytest.mark.slow
@ARCHES
@BYTES
def test_strides_past_two_to_the_31(free_memory, dtype, kernel):
    """Few elements, far apart: matrices of a batch, rows of an operand, rows of a result."""
    rows, pitch, between = 520, 2**22 + 64, LARGE + 64
    assert (rows - 1) * pitch > LARGE
    buffer = torch.empty(rows * pitch, dtype=U8, device="cuda").fill_(0xFF).view(dtype)
    b = small(dtype, 2, 200, 64).mT
    options = {"out_dtype": F32, "kernel": kernel}
    a = cases.fill(buffer.as_strided((2, 300, 64), (between, 64, 1)), largest=1)
    out = torch.ops.tcgemm._gemm(a, b, **options)
    reference.assert_exact(out, reference.exact(a, b, out_dtype=F32))
    a = cases.fill(buffer.as_strided((rows, 64), (pitch, 1)), largest=1)
    out = torch.ops.tcgemm._gemm(a, b[0], **options)
    reference.assert_exact(out, reference.exact(a, b[0], out_dtype=F32))
    a = a.clone(memory_format=torch.contiguous_format)
    options["out_dtype"] = dtype
    out = buffer.as_strided((rows, 200), (pitch, 1))
    torch.ops.tcgemm._gemm.out(a, b[0], **options, out=out)
    reference.assert_exact(out, reference.exact(a, b[0], out_dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("granularity", dtype_matrix.GRANULARITIES)
def test_quantize_past_two_to_the_31(free_memory, granularity):
    """As its parts, which are whole groups."""
    m, k = 2**20 + 1, 2056
    x = torch.empty(m, k, dtype=BF16, device="cuda").normal_()
    values, scale = tcgemm.quantize(x, S8, granularity)
    if granularity == "tensor":
        assert float(scale) == float(x.abs().max().float().cpu() / 127)
    for first in range(0, m, CHUNK):
        rows = slice(first, first + CHUNK)
        if granularity == "tensor":
            assert torch.equal(values[rows], (x[rows].float() / scale).round().to(S8))
            continue
        part, of_part = tcgemm.quantize(x[rows], S8, granularity)
        assert torch.equal(values[rows], part)
        lines = 128 if granularity == "128x128" else 1
        assert torch.equal(scale[first // lines : (first + CHUNK) // lines], of_part)
