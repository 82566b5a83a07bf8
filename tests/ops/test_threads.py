"""Operators called from several Python threads at once, on the CPU and on several CUDA streams."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import tcgemm

from support import cases, dtype_matrix, programs, reference
from support.cases import F32, S32

THREADS = 6
ROUNDS = 8


def together(work, count=THREADS):
    """Runs work(0), work(1), ... at the same time; raises what any of them raises."""
    start = threading.Barrier(count)

    def body(index):
        start.wait(timeout=60)
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(body, range(count)))


def problems(device, dtype):
    """One for each thread: shapes, layouts and epilogues that differ, and the right results."""
    rows = []
    for index in range(THREADS):
        m, n, k = cases.SHAPES[5 * index]
        a, b = cases.operands(
            cases.LAYOUTS[index % 4], m, n, k, dtype=dtype, device=device, largest=5
        )
        bias = cases.make("contiguous", 1, n, dtype=dtype, device=device, largest=9)[0]
        expected = reference.exact(a, b, None, bias, activation="relu")
        rows.append((a, b, bias, expected))
    return rows


@pytest.mark.parametrize(("device", "dtype"), dtype_matrix.DEVICE_DTYPES)
def test_products_at_the_same_time(device, dtype):
    rows = problems(device, dtype)

    def work(index):
        for step in range(ROUNDS):
            a, b, bias, expected = rows[(index + step) % THREADS]
            out = tcgemm.mm(a, b, bias=bias, activation="relu")
            reference.assert_exact(out, expected)

    together(work)


def scaled_problems(device):
    """(a, b, tensors and options, result) of one product of every dtype with scales and amax."""
    rows = []
    for types in dtype_matrix.gemm_types(device):
        a, b = types.operands("NN", 70, 150, 200, device=device, whole=True)
        options = {"device": device, "powers": True}
        terms = {
            "scale_a": dtype_matrix.scale_a("1x128" if types.fp8 else "row", 70, 200, **options),
            "scale_b": dtype_matrix.scale_b("row", 150, 200, **options),
            "out_dtype": types.widest if types.widest != S32 else F32,
            **types.options,
        }
        if types.precision == "fast":
            terms["scale_a"] = None
        if types.integer:
            terms["zero_b"] = dtype_matrix.zero_points(1, 150, device=device)
        rows.append((a, b, terms, reference.exact(a, b, **terms)))
    return rows


@pytest.mark.parametrize("device", ("cpu", cases.gpu("cuda", mark="sm90")))
def test_every_dtype_at_the_same_time(device):
    """With the passes before and in between: copies, sums, maxima; on a GPU in a stream each."""
    rows = scaled_problems(device)
    if device == "cuda":
        torch.cuda.synchronize()

    def work(index):
        stream = torch.cuda.Stream() if device == "cuda" else None
        with torch.cuda.stream(stream):
            for step in range(ROUNDS):
                a, b, options, expected = rows[(5 * index + step) % len(rows)]
                out, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **options)
                reference.assert_exact(out, expected)
                assert amax == expected.abs().max()
                x, scale = tcgemm.quantize(out.float(), torch.int8, "row")
                assert (x.abs().amax(1) == 127).all() and scale.shape == (70, 1)

    together(work)


@pytest.mark.parametrize(("device", "dtype"), dtype_matrix.DEVICE_DTYPES)
def test_one_problem_in_every_thread(device, dtype):
    """The same operands, read by all threads; each has a result of its own."""
    a, b = cases.operands("NN", 300, 200, 500, dtype=dtype, device=device)
    expected = tcgemm.mm(a, b)
    for results in together(lambda _: [tcgemm.mm(a, b) for _ in range(ROUNDS)]):
        assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("device", cases.DEVICES)
def test_errors_and_products_at_the_same_time(device):
    """A refused call leaves nothing behind that another thread could trip over."""
    a, b = cases.operands("TN", 65, 33, 40, dtype=torch.bfloat16, device=device, largest=5)
    expected = reference.exact(a, b)

    def work(index):
        for _ in range(ROUNDS):
            if index % 2:
                with pytest.raises(RuntimeError, match="cannot be multiplied"):
                    tcgemm.mm(b, b)
            else:
                reference.assert_exact(tcgemm.mm(a, b), expected)

    together(work)


def test_explanations_at_the_same_time():
    a = torch.empty(4095, 4095, dtype=torch.bfloat16, device="meta")
    expected = tcgemm.explain(a, a.t())
    assert together(lambda _: tcgemm.explain(a, a.t())) == [expected] * THREADS


def test_any_number_of_torch_threads_gives_the_same_bits():
    a, b = cases.operands("NN", 300, 200, 1000, dtype=torch.float32)
    expected = tcgemm.mm(a, b)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            assert torch.equal(tcgemm.mm(a, b), expected)
    finally:
        torch.set_num_threads(threads)


FIRST_CALLS = """
import threading, torch, tcgemm
start, right = threading.Barrier(8), []
a = torch.ones(200, 128, dtype=torch.float16, device={device!r})
def work():
    start.wait()
    right.append(bool((tcgemm.mm(a, a.t()) == 128).all()))
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert right == [True] * 8, right
"""


@pytest.mark.parametrize("device", cases.DEVICES)
def test_first_calls_of_a_process_come_at_once(device):
    """The first thread sets up what is set up once, such as the shared memory of a kernel."""
    folder = Path(tcgemm.__file__).parents[1]
    process = programs.run(FIRST_CALLS.format(device=device), cwd=folder, timeout=120)
    assert process.returncode == 0, process.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", cases.HALVES, ids=cases.NAMES.get)
def test_every_thread_on_its_own_stream(dtype):
    """The workspace of a prepare pass belongs to the stream that allocated it."""
    shapes = ((511, 257, 1023), (1000, 1000, 1000), (2047, 2047, 2047), (64, 4096, 1024))
    operands = []
    for m, n, k in shapes:
        a, b = cases.operands("TN", m, n, k, dtype=dtype, device="cuda", largest=5)
        operands.append((a, b, reference.exact(a, b)))
    torch.cuda.synchronize()

    def work(index):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            results = [
                (tcgemm.mm(a, b), expected)
                for step in range(ROUNDS)
                for a, b, expected in (operands[(index + step) % len(operands)],)
            ]
            stream.synchronize()
            for out, expected in results:
                reference.assert_exact(out, expected)

    together(work)
