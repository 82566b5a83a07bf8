"""What only a GPU shows: streams, graphs, dependent launches, memory, sizes.

Results of single products are in the files that run on both devices, single kernels are in
test_kernels.py, which kernel runs is in test_launched.py, and what other dtypes, scales,
amax and quantize add to this is in test_dtypes.py.
"""

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import BF16, CHUNK, F16, F32, LARGE, spin, waits_for_nothing

pytestmark = pytest.mark.gpu

NAN = float("nan")
HALVES = pytest.mark.parametrize("dtype", cases.HALVES, ids=cases.NAMES.get)


def make(strides, *shape, dtype=F16, largest=4):
    return cases.make(strides, *shape, dtype=dtype, device="cuda", largest=largest)


# Order: streams, dependent launches, graphs.


@pytest.mark.parametrize("size", (1024, 1023))
def test_runs_on_the_current_stream(size):
    """Its inputs are still to be written there when the product is asked for."""
    stream = torch.cuda.Stream()
    a, new, b = (make("contiguous", size, size) for _ in range(3))
    expected = reference.exact(new, b)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        given = torch.full_like(tcgemm.mm(a, b), NAN)  # the stream's memory pool is warm now
        torch.cuda.synchronize()
        spin()
        a.copy_(new)
        out = tcgemm.mm(a, b)
        assert not stream.query(), "the call waited for the GPU"
        tcgemm.mm(a, b, out=given)
    stream.synchronize()
    reference.assert_exact(out, expected)
    reference.assert_exact(given, expected)


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


@pytest.mark.parametrize("shape", ((512, 640, 384), (1023, 1023, 1023), (65, 33, 77)), ids=str)
@HALVES
def test_graph_replays_with_new_inputs(dtype, shape):
    m, n, k = shape
    options = {"dtype": dtype, "device": "cuda", "largest": 4}
    a, b = cases.operands("TN", m, n, k, **options)
    bias = cases.make("contiguous", 1, n, **options)[0]
    given = torch.full((m, n), NAN, dtype=dtype, device="cuda")

    def work():
        tcgemm.mm(a, b, out=given)
        return tcgemm.linear(a, b.t(), bias, activation="relu"), tcgemm.mm(given, given.t())

    graph, (fused, square) = cases.captured(work)
    for _ in range(3):
        cases.fill(a, largest=4)
        cases.fill(b, largest=4)
        for tensor in (fused, square, given):
            tensor.fill_(NAN)
        graph.replay()
        torch.cuda.synchronize()
        reference.assert_exact(given, reference.exact(a, b))
        expected = reference.exact(a, b, None, bias, activation="relu")
        reference.assert_exact(fused, expected)
        reference.assert_exact(fused, tcgemm.linear(a, b.t(), bias, activation="relu"))
        assert torch.equal(square, tcgemm.mm(given, given.t()))


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


def test_same_bits_beside_other_work():
    """Neither another stream's traffic nor what memory held before changes a bit."""
    a = cases.make("contiguous", 1500, 2048, dtype=BF16, device="cuda")
    b = cases.make("contiguous", 2048, 1800, dtype=BF16, device="cuda")
    expected = tcgemm.mm(a, b)
    reference.assert_close(expected, a, b)
    noise = torch.randn(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(20):
        with torch.cuda.stream(stream):
            noise.mul_(1.0001)
            noise @ noise
        assert torch.equal(tcgemm.mm(a, b), expected)
    torch.cuda.synchronize()


# Devices and memory.


def test_operands_on_different_devices_are_refused():
    a, b = make("contiguous", 8, 8), make("contiguous", 8, 8)
    for given, keywords in (
        ((a, b.cpu()), {}),
        ((a.cpu(), b), {}),
        ((a, b), {"bias": torch.zeros(8)}),
        ((a, b), {"residual": torch.zeros(8, 8)}),
        ((a, b), {"out": torch.empty(8, 8, dtype=F16)}),
        ((a.cpu(), b.cpu()), {"out": torch.empty(8, 8, dtype=F16, device="cuda")}),
    ):
        with pytest.raises(RuntimeError, match="must be on one device"):
            tcgemm.mm(*given, **keywords)
    reference.assert_exact(tcgemm.mm(a, b), reference.exact(a, b))


def test_workspaces_are_given_back():
    a, b = make("contiguous", 2047, 2047), make("contiguous", 2047, 2047)
    tcgemm.mm(a, b)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(20):
        tcgemm.mm(a, b)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() < before + 6 * a.nbytes


# More than 2^31 elements.

ARCHES = pytest.mark.parametrize("kernel", ("sm80", pytest.param("sm90a", marks=pytest.mark.sm90)))


def assert_exact_in_chunks(out, a, b):
    """Every element, against f32 products that small integers are exact in."""
    for first in range(0, len(out), CHUNK):
        rows = slice(first, first + CHUNK)
        reference.assert_exact(out[rows], (a[rows].float() @ b.float()).to(out.dtype))


@pytest.mark.slow
@ARCHES
@pytest.mark.parametrize("n", (2056, 2049))
def test_results_past_two_to_the_31(free_memory, n, kernel):
    """Stored by TMA and in words, or one by one where rows are odd."""
    m, k = 2**20 + 1, 24
    assert m * n > LARGE
    a = torch.empty(m, k, dtype=F16, device="cuda").random_(-3, 4)
    b = make("contiguous", k, n)
    out = torch.full((m, n), NAN, dtype=F16, device="cuda")
    torch.ops.tcgemm._gemm.out(a, b, kernel=kernel, out=out)
    assert_exact_in_chunks(out, a, b)


@pytest.mark.slow
@ARCHES
@pytest.mark.parametrize("strides", ("contiguous", "odd_pitch", "transposed"))
def test_operands_past_two_to_the_31(free_memory, strides, kernel):
    """An odd pitch brings in a copy of such an operand, which is as large."""
    m, n, k = 2**20 + 8, 16, 2056
    assert m * k > LARGE
    a = cases.empty(strides, (m, k), dtype=F16, device="cuda").random_(-2, 3)
    b = make("contiguous", k, n)
    out = torch.full((m, n), NAN, dtype=F32, device="cuda")
    torch.ops.tcgemm._gemm.out(a, b, kernel=kernel, out_dtype=F32, out=out)
    assert_exact_in_chunks(out, a, b)


@pytest.mark.slow
@ARCHES
def test_strides_past_two_to_the_31(free_memory, kernel):
    """Few elements, far apart: matrices of a batch, rows of an operand, rows of a result."""
    rows, pitch, between = 520, 2**22 + 64, LARGE + 64
    assert (rows - 1) * pitch > LARGE
    buffer = torch.full((rows * pitch,), NAN, dtype=F16, device="cuda")
    b = make("contiguous", 2, 64, 200)
    a = cases.fill(buffer.as_strided((2, 300, 64), (between, 64, 1)), largest=4)
    out = torch.ops.tcgemm._gemm(a, b, kernel=kernel)
    reference.assert_exact(out, reference.exact(a, b))
    a = cases.fill(buffer.as_strided((rows, 64), (pitch, 1)), largest=4)
    out = torch.ops.tcgemm._gemm(a, b[0], kernel=kernel)
    reference.assert_exact(out, reference.exact(a, b[0]))
    a = a.clone(memory_format=torch.contiguous_format)
    out = buffer.as_strided((rows, 200), (pitch, 1))
    torch.ops.tcgemm._gemm.out(a, b[0], kernel=kernel, out=out)
    reference.assert_exact(out, reference.exact(a, b[0]))
