"""What only a GPU shows: which kernel ran, streams, graphs, dependent launches, memory, sizes.

Results of single products are in the files that run on both devices, single kernels are in
test_gpu_kernels.py.
"""

import json
import re

import cases
import pytest
import reference
import torch
from cases import BF16, F16, F32

import tcgemm

pytestmark = pytest.mark.gpu

NAN = float("nan")
HALVES = pytest.mark.parametrize("dtype", cases.HALVES, ids=cases.NAMES.get)
LARGE = 2**31


def make(strides, *shape, dtype=F16, largest=4):
    return cases.make(strides, *shape, dtype=dtype, device="cuda", largest=largest)


def spin(milliseconds=50):
    """Keeps the current stream busy."""
    torch.cuda._sleep(int(1.5e6 * milliseconds))


# Which kernel ran.


def launched(call, folder):
    """Names of the CUDA kernels that a call launches, as the profiler sees them."""
    call()  # what is set up once is not looked at
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    trace = folder / "trace.json"
    profile.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("cat") == "kernel"]


# Demangled, or mangled where the demangler does not know the template argument.
PRODUCT = re.compile(r"tcgemm::kernels::gemm<(?:\(int\))?(\d+)|6tcgemm7kernelsL?4gemmILi(\d+)E")
ROW = re.compile(r"\(row (\d+) of the catalog\)")


def check_launched(names, text, products=1):
    """Exactly what explain says: its kernel, its copies, and nothing of anyone else."""
    assert names, "the profiler saw no kernel"
    assert all("tcgemm" in name for name in names), names
    found = [match for match in map(PRODUCT.search, names) if match]
    rows = [int(match.group(1) or match.group(2)) for match in found]
    assert rows == [int(ROW.search(text).group(1))] * products, (names, text)
    copies = len(re.findall(r"^  prepare [ab] ", text, re.MULTILINE))
    assert sum("prepare" in name for name in names) == copies * products, (names, text)
    assert len(names) == (1 + copies) * products, (names, text)


def profiled_calls(dtype):
    """(label, call, what explain says)."""
    options = {"dtype": dtype}
    bias = make("contiguous", 1, 640, **options)[0]
    for layout in cases.LAYOUTS:
        a, b = cases.operands(layout, 512, 640, 384, dtype=dtype, device="cuda", largest=4)
        yield f"mm {layout}", lambda a=a, b=b: tcgemm.mm(a, b), tcgemm.explain(a, b)
    a, b = make("contiguous", 512, 384, **options), make("transposed", 384, 640, **options)
    keywords = {"bias": bias, "activation": "gelu"}
    text = tcgemm.explain(a, b, **keywords)
    yield "mm with an epilogue", lambda: tcgemm.mm(a, b, **keywords), text
    out = cases.empty("transposed", (512, 640), dtype=dtype, device="cuda")
    text = tcgemm.explain(a, b, out=out)
    yield "mm column-major", lambda: tcgemm.mm(a, b, out=out), text
    text = tcgemm.explain(a, b, out_dtype=F32)
    yield "mm to f32", lambda: tcgemm.mm(a, b, out_dtype=F32), text
    residual = make("contiguous", 512, 640, **options)
    # explain has no c: as an addend of the result's shape it costs what a residual costs.
    text = tcgemm.explain(a, b, residual=residual)
    yield "addmm", lambda: tcgemm.addmm(residual, a, b), text
    x, weight = make("contiguous", 4, 128, 384, **options), b.t()
    text = tcgemm.explain(x, b, bias=bias)
    yield "linear", lambda: tcgemm.linear(x, weight, bias), text
    batch_a = make("contiguous", 6, 256, 128, **options)
    batch_b = make("contiguous", 6, 128, 192, **options)
    text = tcgemm.explain(batch_a, batch_b)
    yield "bmm", lambda: tcgemm.bmm(batch_a, batch_b), text
    text = tcgemm.explain(batch_a, batch_b[0])
    yield "matmul", lambda: tcgemm.matmul(batch_a, batch_b[0]), text
    odd_a, odd_b = make("contiguous", 65, 33, **options), make("contiguous", 33, 77, **options)
    yield "mm small and odd", lambda: tcgemm.mm(odd_a, odd_b), tcgemm.explain(odd_a, odd_b)
    large = make("contiguous", 4095, 4095, **options)
    text = tcgemm.explain(large, large.t())
    yield "mm large and odd", lambda: tcgemm.mm(large, large.t()), text
    one = make("contiguous", 4095, 4096, **options)
    text = tcgemm.explain(large, one)
    yield "mm with one odd operand", lambda: tcgemm.mm(large, one), text
    vector = make("contiguous", 1, 4096, **options)[0]
    text = tcgemm.explain(one, vector)
    yield "matmul with a vector", lambda: tcgemm.matmul(one, vector), text


@HALVES
def test_the_kernel_that_ran_is_the_one_that_explain_names(dtype, tmp_path):
    for label, call, text in profiled_calls(dtype):
        names = launched(call, tmp_path)
        try:
            check_launched(names, text)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from error


def test_each_product_of_a_batch_that_does_not_merge_is_launched(tmp_path):
    a = make("batch_reversed", 2, 3, 64, 64)
    b = make("contiguous", 2, 3, 64, 64)
    text = tcgemm.explain(a, b)
    count = int(re.search(r"so (\d+) products", text).group(1))
    assert count > 1
    check_launched(launched(lambda: tcgemm.matmul(a, b), tmp_path), text, count)


def test_check_of_what_ran_can_fail(tmp_path):
    a = make("contiguous", 256, 256)
    names = launched(lambda: tcgemm.mm(a, a), tmp_path)
    check_launched(names, tcgemm.explain(a, a))
    other = tcgemm.explain(a.bfloat16(), a.bfloat16())
    foreign = launched(lambda: torch.mm(a, a), tmp_path)
    for wrong, text in (
        (names, other),
        (names * 2, tcgemm.explain(a, a)),
        (foreign, other),
        ([], other),
        (names[:-1], other),
    ):
        with pytest.raises(AssertionError):
            check_launched(wrong, text)


def test_an_empty_result_launches_nothing(tmp_path):
    a = make("contiguous", 0, 64)
    b = make("contiguous", 64, 32)
    assert launched(lambda: tcgemm.mm(a, b), tmp_path) == []


def test_explain_speaks_of_this_gpu():
    a = make("contiguous", 64, 64)
    facts = torch.cuda.get_device_properties(0)
    for function in (tcgemm.explain, tcgemm.check_layout):
        assert facts.name in function(a, a)
        assert "on A100" in function(a, a, device="A100")
    count = facts.multi_processor_count
    assert f"blocks on {count} multiprocessors" in tcgemm.explain(a, a)


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
    tcgemm.mm(a, b)
    torch.cuda.synchronize()
    spin(200)
    for _ in range(20):
        tcgemm.mm(a, b)
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


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

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fused, square = work()
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
    with torch.cuda.graph(graph):
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


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_gpu():
    """Also while the first is the current device, and never both in one call."""
    a = cases.make("contiguous", 300, 200, dtype=BF16, device="cuda:1", largest=4)
    for size in (200, 199):  # the latter through a copy pass
        b = cases.make("contiguous", 200, size, dtype=BF16, device="cuda:1", largest=4)
        out = tcgemm.mm(a, b)
        assert out.device == a.device
        reference.assert_exact(out, reference.exact(a, b))
    assert torch.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match="must be on one device"):
        tcgemm.mm(a, b.to("cuda:0"))


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
CHUNK = 2**17  # rows that are compared at a time


@pytest.fixture
def room():
    """Large tensors go back to the driver before and after."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    if free < 20e9:
        pytest.skip(f"20 GB of free memory are needed, {free / 1e9:.0f} are there")
    yield
    torch.cuda.empty_cache()


def assert_exact_in_chunks(out, a, b):
    """Every element, against f32 products that small integers are exact in."""
    for first in range(0, len(out), CHUNK):
        rows = slice(first, first + CHUNK)
        reference.assert_exact(out[rows], (a[rows].float() @ b.float()).to(out.dtype))


@pytest.mark.slow
@ARCHES
@pytest.mark.parametrize("n", (2056, 2049))
def test_results_past_two_to_the_31(room, n, kernel):
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
def test_operands_past_two_to_the_31(room, strides, kernel):
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
def test_strides_past_two_to_the_31(room, kernel):
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
