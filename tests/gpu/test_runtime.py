"""Behaviour that only a GPU has: streams, graphs, dependent launches, memory.

Results of single products are in the files that run on both devices, single kernels are in
test_kernels.py, which kernel runs is in test_launched.py, and tensors of more than 2^31 elements
are in test_large_tensors.py.
"""

import pytest
import torch

import tcgemm

from support import cases, dtype_matrix, reference
from support.cases import (
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    FP8,
    S8,
    S32,
    spin,
    waits_for_nothing,
)
from support.dtype_matrix import all_operands

pytestmark = pytest.mark.gpu

NAN = float("nan")
HALVES = pytest.mark.parametrize("dtype", cases.HALVES, ids=cases.NAMES.get)
EVERY = dtype_matrix.on_gpu()
# One of each way to the tensor cores: copied, converted, transposed, promoted, scaled, summed.
FEW = dtype_matrix.on_gpu(lambda types: types.a == types.b and types.a in (F16, F32, F64, E4M3, S8))


def make(strides, *shape, dtype=F16, largest=4):
    return cases.make(strides, *shape, dtype=dtype, device="cuda", largest=largest)


# Order: streams, dependent launches, graphs.


@FEW
@pytest.mark.parametrize("size", (512, 511, 1024, 1023))
def test_runs_on_the_current_stream(types, size):
    """Its inputs, and its scales, are still to be written there when the product is asked for."""
    stream = torch.cuda.Stream()
    x, w = types.operands("NN", size, size, size, device="cuda", whole=True)
    new_x, _ = types.operands("NN", size, size, size, device="cuda", whole=True)
    a, b, options = all_operands(types, size, size, size, types.outs[-1])
    new, _, new_options = all_operands(types, size, size, size, types.outs[-1])
    tensors = [name for name, value in options.items() if isinstance(value, torch.Tensor)]
    amax_too = torch.ops.tcgemm.scaled_mm_amax
    expected = reference.exact(new_x, w, **types.options)
    expected_scaled, expected_amax = amax_too(new, b, **new_options)
    into = torch.full_like(expected, cases.poison(expected.dtype))

    def multiply():
        return tcgemm.mm(x, w, **types.options), *amax_too(a, b, **options)

    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        multiply()  # the stream's memory pool is warm now
        torch.cuda.synchronize()
        spin()
        x.copy_(new_x)
        a.copy_(new)
        for name in tensors:
            options[name].copy_(new_options[name])
        out, scaled, amax = multiply()
        assert not stream.query(), "the call waited for the GPU"
        tcgemm.mm(x, w, **types.options, out=into)
    stream.synchronize()
    reference.assert_exact(out, expected)
    reference.assert_exact(into, expected)
    assert torch.equal(scaled, expected_scaled)
    assert torch.equal(amax, expected_amax)


def test_warm_calls_wait_for_nothing():
    a, b = make("contiguous", 255, 255), make("contiguous", 255, 255)
    assert waits_for_nothing(lambda: tcgemm.mm(a, b), 20)


@HALVES
def test_dependent_products_wait_for_one_another(dtype):
    """Each reads what the one before has just written; permutations keep every bit."""
    size = 2048
    order = torch.randperm(size, device="cuda")
    permutation = torch.eye(size, dtype=dtype, device="cuda")[order]
    x = cases.make("contiguous", size, size, dtype=dtype, device="cuda")
    odd = cases.empty("odd_pitch", (size, size), dtype=dtype, device="cuda")
    expected, y = x, x
    for step in range(60):
        expected = expected[order]
        if step % 7 == 6:
            y = torch.ops.tcgemm._gemm(permutation, y, kernel="sm80")
        elif step % 5 == 4:  # written by a product, read next by a copy pass
            y = tcgemm.mm(permutation, y, out=odd)
        else:
            y = tcgemm.mm(permutation, y)
    assert torch.equal(y, expected)


def test_a_result_may_replace_what_was_just_read():
    """A product writes where an earlier one, or torch, may still be reading; and the reverse."""
    size = 2048
    x, z, w = (make("contiguous", size, size, largest=2) for _ in range(3))
    product = reference.exact(x, w)
    other = reference.exact(z, w)
    for _ in range(10):
        a = x.clone()
        y = tcgemm.mm(a, w)
        tcgemm.mm(z, w, out=a)
        copy = a.clone()
        a.fill_(NAN)
        assert torch.equal(y, product)
        assert torch.equal(copy, other)


@pytest.mark.sm89
def test_a_chain_of_dependent_passes():
    """quantize, multiply, amax, requantise, multiply: each reads what was just written, with
    nothing in between; the same bits as with a pause after every step."""
    x = torch.randn(1500, 1100, device="cuda")
    weights = [tcgemm.quantize(torch.randn(1100, 1100, device="cuda"), E4M3, "128x128")]
    weights += [tcgemm.quantize(torch.randn(1100, 1100, device="cuda"), S8, "row")]

    def chain(pause):
        results, y = [], x
        for step in range(40):
            weight, scale = weights[step % 2]
            granularity = ("1x128", "row")[step % 2]
            values, scale_y = tcgemm.quantize(y, weight.dtype, granularity)
            pause()
            options = {"scale_a": scale_y, "scale_b": scale.t(), "out_dtype": F32, "alpha": 0.03}
            y, amax = tcgemm.linear(values, weight, **options, amax=True)
            pause()
            narrow = {"scale_out": 100 / amax, "out_dtype": S8 if step % 2 else E5M2}
            small = tcgemm.linear(values, weight, **(options | narrow))
            pause()
            results += [y, amax, small.float()]
            y = y + 1e-3 * small.float()
        return results

    expected = chain(torch.cuda.synchronize)
    for _ in range(3):
        for result, value in zip(chain(lambda: None), expected, strict=True):
            assert torch.equal(result, value)


@FEW
def test_dependent_copies_and_products(types):
    """Odd sizes: a copy, sums and a product a call, over buffers that the last call just read."""
    a, b, options = all_operands(types, 777, 555, 333, types.outs[0])
    expected = torch.ops.tcgemm.scaled_mm(a, b, **options)
    torch.cuda.synchronize()
    into = torch.empty_like(expected)
    buffer = torch.empty_like(a)
    for _ in range(30):
        buffer.copy_(a)
        torch.ops.tcgemm.scaled_mm.out(buffer, b, **options, out=into)
        buffer.zero_()
        copy = into.clone()
        into.fill_(cases.poison(into.dtype))
        assert torch.equal(copy, expected)


SHAPES = ((512, 640, 384), (1023, 1023, 1023), (65, 33, 77))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@EVERY
def test_graph_replays_with_new_inputs(types, shape):
    """One of its products reads what another has just written."""
    m, n, k = shape
    out_dtype = F16 if types.integer else types.outs[0]
    largest = 4 if types.integer else types.largest(k)
    options = types.options | {"out_dtype": out_dtype}
    square_options = types.options if types.a == F32 else {}
    a, b = types.operands("TN", m, n, k, device="cuda", whole=True)
    bias = types.addend(n, device="cuda")
    first = torch.full((m, n), NAN, dtype=out_dtype, device="cuda")

    def fuse():
        return tcgemm.linear(a, b.t(), bias, activation="relu", **options)

    def work():
        tcgemm.mm(a, b, out=first, **options)
        return fuse(), tcgemm.mm(first, first.t(), **square_options)

    graph, (fused, square) = cases.graph_of(work)
    for _ in range(3):
        cases.fill(a, largest=largest)
        cases.fill(b, largest=largest)
        for tensor in (fused, square, first):
            tensor.fill_(NAN)
        graph.replay()
        torch.cuda.synchronize()
        reference.assert_exact(first, reference.exact(a, b, **options))
        expected = reference.exact(a, b, None, bias, activation="relu", **options)
        reference.assert_exact(fused, expected)
        reference.assert_exact(fused, fuse())
        assert torch.equal(square, tcgemm.mm(first, first.t(), **square_options))


@EVERY
def test_graph_of_amax_and_quantize_replays_with_new_inputs(types):
    """Their maxima are cleared and found anew in every replay."""
    m, n, k = 300, 260, 333
    out = types.outs[-1]
    a, b, options = all_operands(types, m, n, k, out)
    x = torch.randn(m, k, device="cuda")
    narrow = types.a if types.a in (*FP8, S8) else S8 if types.integer else E5M2

    def work():
        result, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **options)
        plain = tcgemm.mm(a, b, **types.options)
        results = [result, amax, plain]
        for granularity in dtype_matrix.GRANULARITIES:
            results += tcgemm.quantize(x, narrow, granularity)
        requantised = options | {"scale_out": 1 / amax.clamp(min=1e-3)}
        return [*results, torch.ops.tcgemm.scaled_mm(a, b, **requantised)]

    graph, graph_results = cases.graph_of(work)
    for step in range(3):
        new_a, new_b, new_options = all_operands(types, m, n, k, out)
        a.copy_(new_a)
        b.copy_(new_b)
        x.copy_(torch.randn(m, k) / 4**step)  # smaller ones, so that an old maximum shows
        for name, value in new_options.items():
            if isinstance(value, torch.Tensor):
                options[name].copy_(value if value.dtype == S32 else value / 4**step)
        for tensor in graph_results:
            tensor.fill_(cases.poison(tensor.dtype))
        graph.replay()
        torch.cuda.synchronize()
        for graph_result, expected in zip(graph_results, work(), strict=True):
            assert torch.equal(graph_result, expected)


def test_graph_of_batches_that_do_not_merge():
    a, b = make("batch_reversed", 2, 3, 70, 40), make("contiguous", 2, 3, 40, 50)
    out = tcgemm.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        out = tcgemm.matmul(a, b)
    cases.fill(a, largest=3)
    graph.replay()
    torch.cuda.synchronize()
    reference.assert_exact(out, reference.exact(a, b))


@pytest.mark.parametrize("shape", ((1500, 1800, 2048), (1000, 900, 1100)), ids=str)
@EVERY
def test_same_bits_beside_other_work(types, shape):
    """Neither another stream's traffic nor what memory held before changes a bit."""
    a, b, options = all_operands(types, *shape, types.outs[0])
    expected = tcgemm.mm(a, b, **types.options)
    if types.integer:
        reference.assert_exact(expected, reference.exact(a, b, **types.options))
    else:
        reference.assert_close(expected, a, b, **types.options)
    scaled = torch.ops.tcgemm.scaled_mm(a, b, **options)
    noise = torch.randn(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(20):
        with torch.cuda.stream(stream):
            noise.mul_(1.0001)
            noise @ noise
        assert torch.equal(tcgemm.mm(a, b, **types.options), expected)
        assert torch.equal(torch.ops.tcgemm.scaled_mm(a, b, **options), scaled)
    torch.cuda.synchronize()


# Devices and memory.


def test_operands_on_different_devices_are_refused():
    a, b = make("contiguous", 8, 8), make("contiguous", 8, 8)
    for operands, keywords in (
        ((a, b.cpu()), {}),
        ((a.cpu(), b), {}),
        ((a, b), {"bias": torch.zeros(8)}),
        ((a, b), {"residual": torch.zeros(8, 8)}),
        ((a, b), {"out": torch.empty(8, 8, dtype=F16)}),
        ((a.cpu(), b.cpu()), {"out": torch.empty(8, 8, dtype=F16, device="cuda")}),
    ):
        with pytest.raises(RuntimeError, match="must be on one device"):
            tcgemm.mm(*operands, **keywords)
    reference.assert_exact(tcgemm.mm(a, b), reference.exact(a, b))


@pytest.mark.parametrize("size", (1023, 2047))
@FEW
def test_workspaces_are_given_back(types, size):
    a, b, options = all_operands(types, size, size, size, types.outs[0])
    one = torch.ops.tcgemm.scaled_mm(a, b, **options).nbytes
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(20):
        torch.ops.tcgemm.scaled_mm(a, b, **options)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    # A result, and copies or FP32 terms of both operands.
    assert torch.cuda.max_memory_allocated() < before + one + 5 * a.nbytes
