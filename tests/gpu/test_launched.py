"""The kernels that a call launches, as the profiler sees them: exactly what explain says."""

import json
import re
from functools import partial

import pytest
import torch

import tcgemm

from support import cases, dtype_matrix, reference
from support.cases import BF16, E4M3, F16, F32, F64, S8, S32
from support.machine_code import EPILOGUE_PATHS

pytestmark = pytest.mark.gpu

# The dtypes whose operands are not always read as they are.
TYPES = pytest.mark.parametrize(
    "types",
    [
        pytest.param(types, marks=getattr(pytest.mark, types.marks), id=str(types))
        for types in dtype_matrix.gemm_types("cuda")
        if types.b in (BF16, F16, F32, F64, E4M3, S8)
    ],
)


def launched(call, folder):
    """Names of the CUDA kernels that a call launches."""
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
PRODUCT = re.compile(
    r"tcgemm::kernels::gemm<(?:\(int\))?(\d+), \(tcgemm::EpiloguePath\)(\d)"
    r"|6tcgemm7kernelsL?4gemmILi(\d+)ELNS\w*?12EpiloguePathE(\d)E"
)
KERNEL = re.compile(r"\(row (\d+) of the catalog, (\w+) epilogue\)")


def products_of(names):
    """(row, epilogue path) of each name that is a product's."""
    matches = [match.groups() for match in map(PRODUCT.search, names) if match]
    return [
        (int(row or other), EPILOGUE_PATHS[int(path or and_path)])
        for row, path, other, and_path in matches
    ]


def check_launched(names, text, products=1, sums=0):
    """Its kernel, one launch for its copies, its sums for zero points, the sum of its slices of k,
    and nothing else. torch copies a result that is computed in the other major."""
    assert names, "the profiler saw no kernel"
    if "\n  copied        out " in text:
        assert "tcgemm" not in names[-1], names
        names = names[:-1]
    assert all("tcgemm" in name for name in names), names
    kernels = products_of(names)
    row, path = KERNEL.search(text).groups()
    if "\n  split-FP32 a " in text:
        check_chain(names, kernels, (int(row), path), text, products)
        return
    computes_again = int("\n  recompute " in text)
    assert kernels[:: 1 + computes_again] == [(int(row), path)] * products, (names, text)
    copies = int(re.search(r"^  repack [ab] ", text, re.MULTILINE) is not None)
    assert sum("repack" in name for name in names) == copies * products, (names, text)
    assert sum("sum_along_k" in name for name in names) == sums * products, (names, text)
    adds = int("whose sums another kernel adds" in text)
    assert sum("add_slices" in name for name in names) == adds * products, (names, text)
    launches = 1 + copies + sums + adds + computes_again
    assert len(names) == launches * products, (names, text)


def check_chain(names, launches, kernel, text, products):
    """Split FP32 launches both passes, the kernel, its alternative and the recompute
    kernel, whatever the data."""
    split = sum("split_in_" in name for name in names)
    kernels = 2 + ("\n  alternative " in text)
    assert split == 2 * products, (names, text)
    assert len(launches) == kernels * products, (names, text)
    assert launches.count(kernel) == products, (names, text)
    assert len(names) == split + len(launches), (names, text)


def calls(types):
    """(label, call, what explain says)."""

    def make(layout, *sizes, **options):
        return types.operands(layout, *sizes, device="cuda", **options)

    def product(label, a, b, **options):
        options |= types.options
        return label, lambda: tcgemm.matmul(a, b, **options), tcgemm.explain(a, b, **options)

    for layout in cases.LAYOUTS:
        yield product(f"mm {layout}", *make(layout, 512, 640, 384))
        yield product(f"mm {layout} odd", *make(layout, 511, 642, 381))
        yield product(f"mm {layout} small", *make(layout, 65, 33, 77))
        a, b = make(layout, 512, 640, 384)
        out = cases.empty("transposed", (512, 640), dtype=types.outs[0], device="cuda")
        yield product(f"mm {layout} column-major", a, b, out=out)
    a, b = make("TN", 512, 640, 384)
    bias = types.addend(640, device="cuda")
    wide = F64 if types.a == F64 else F32
    yield product("an epilogue", a, b, bias=bias, activation="gelu", out_dtype=wide)
    if types.outs[0].itemsize == 2:
        yield product("an epilogue to 16 bits", a, b, bias=bias, activation="gelu")
    for out_dtype in types.outs:
        yield product(f"to {out_dtype}", a, b, out_dtype=out_dtype)
    residual = types.addend(512, 640, out=types.outs[0], device="cuda")
    # explain has no c: as an addend of the result's shape it costs what a residual costs.
    text = tcgemm.explain(a, b, residual=residual, **types.options)
    yield "addmm", lambda: tcgemm.addmm(residual, a, b, **types.options), text
    scales = {"scale_a": dtype_matrix.scale_a("row", 512, 384, device="cuda"), "out_dtype": wide}
    yield product("scale_a", a, b, **scales)
    if types.fp8 and types.precision is None:
        scales["scale_b"] = dtype_matrix.scale_b("128x128", 640, 384, device="cuda")
        yield product("blocks", a, b, **scales)
    batches = make("NN", 256, 192, 128, batch=(6,))
    yield product("a batch", *batches)
    yield product("a batch of one b", batches[0], batches[1][0])
    large, other = make("NT", 1023, 4097, 2046)
    yield product("large and odd", large, other)
    yield product("with a vector", large, other[:, 0])


def check(label, names, *expected):
    try:
        check_launched(names, *expected)
    except AssertionError as error:
        raise AssertionError(f"{label}: {error}") from error


@TYPES
def test_the_kernel_that_ran_is_the_one_that_explain_names(types, tmp_path):
    for label, call, text in calls(types):
        check(label, launched(call, tmp_path), text)


def test_zero_points_launch_sums(tmp_path):
    a, b = (t.to(S8) for t in torch.ones(2, 512, 512, device="cuda"))
    zero = torch.ones(1, 1, dtype=S32, device="cuda")
    # explain has no zero points: to the kernel itself they cost what a bias costs.
    text = tcgemm.explain(a, b.t(), bias=torch.zeros(512, dtype=S32, device="cuda"))
    for zeros in ({"zero_a": zero}, {"zero_b": zero}, {"zero_a": zero, "zero_b": zero}):
        names = launched(partial(tcgemm.mm, a, b.t(), **zeros), tmp_path)
        check(str(list(zeros)), names, text, 1, len(zeros))


def test_quantize_launches_one_kernel(tmp_path):
    x = torch.randn(300, 200, device="cuda")
    for granularity, passes in (("tensor", 2), ("row", 1), ("1x128", 1), ("128x128", 1)):
        quantize = partial(tcgemm.quantize, x, E4M3, granularity)
        names = launched(quantize, tmp_path)
        assert len(names) == passes, names
        assert all("tcgemm" in name for name in names), names
        names = launched(partial(quantize, scale=quantize()[1], amax=True), tmp_path)
        assert len(names) == 1 and "tcgemm" in names[0], names


def test_amax_adds_no_kernel(tmp_path):
    a = cases.make("contiguous", 512, 512, dtype=BF16, device="cuda", largest=4)
    names = launched(lambda: tcgemm.mm(a, a, amax=True), tmp_path)
    check("amax", names, tcgemm.explain(a, a, amax=True))


def test_each_product_of_a_batch_that_does_not_merge_is_launched(tmp_path):
    a = cases.make("batch_reversed", 2, 3, 64, 64, dtype=F16, device="cuda", largest=4)
    b = cases.make("contiguous", 2, 3, 64, 64, dtype=F16, device="cuda", largest=4)
    text = tcgemm.explain(a, b)
    count = int(re.search(r"so (\d+) products", text).group(1))
    assert count > 1
    check_launched(launched(lambda: tcgemm.matmul(a, b), tmp_path), text, count)
    out, amax = tcgemm.matmul(a, b, amax=True, scale_a=torch.ones((), device="cuda"))
    assert amax == reference.exact(a, b, out_dtype=F32).abs().max()
    reference.assert_exact(out, reference.exact(a, b))


def test_check_of_what_ran_can_fail(tmp_path):
    a = cases.make("contiguous", 256, 256, dtype=F16, device="cuda", largest=4)
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
    for dtype in (F16, E4M3, S8):
        a = torch.empty(0, 64, device="cuda").to(dtype)
        b = torch.zeros(64, 32, device="cuda").to(dtype)
        assert launched(lambda a=a, b=b: tcgemm.mm(a, b), tmp_path) == []


def test_explain_speaks_of_this_gpu():
    a = cases.make("contiguous", 64, 64, dtype=F16, device="cuda", largest=4)
    facts = torch.cuda.get_device_properties(0)
    for function in (tcgemm.explain, tcgemm.check_layout):
        assert facts.name in function(a, a)
        assert "on H100" in function(a, a, device="H100")
    count = facts.multi_processor_count
    assert f"CTAs on {count} multiprocessors" in tcgemm.explain(a, a)
