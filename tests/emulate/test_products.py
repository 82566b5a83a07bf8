"""emulate.mm has the bits of results that were recorded on a GPU, and follows the plan."""

import functools
import json
import time

import pytest
import torch

import tcgemm
from tcgemm import emulate, info
from tcgemm.emulate import rounding, split_fp32, sums

from support import bit_problems, recorded_bits
from support.reference import same_bits

RECORD = json.loads((bit_problems.DATA / "bits_h200.json").read_text())["results"]
NAMES = json.loads((bit_problems.DATA / "row_names.json").read_text())
CALLS = {"scaled_mm", "mm", "addmm", "linear", "matmul", "bmm", "linear24", "mm24"}
MOST_WORK = 2e7  # multiplications of a problem: all of them take a minute more
PARTS = 8
KERNELS = [row["name"] for row in info.catalog() if not row["weight_bits"]]


def kernel_of(case):
    return NAMES.get(case.get("row"), case.get("row"))


def has_bits(case):
    """The record has a result that emulate.mm computes."""
    if case["call"] not in CALLS or recorded_bits.work(case) > MOST_WORK:
        return False
    if "bits" not in RECORD[str(case["id"])] or case.get("activation") not in (None, "relu"):
        return False
    kernel = kernel_of(case)
    return kernel is None or any(kernel in name for name in KERNELS)


PROBLEMS = [one for one in bit_problems.problems() if has_bits(one)]


@functools.cache
def data():
    return recorded_bits.Data("cpu")


def operands(case):
    """a, b and the epilogue, as emulate.mm takes them."""
    if case.get("sparse"):
        s, x = recorded_bits.sparse_operands(data(), case)
        a, b = (s, x.mT) if case["sparse"] == "a" else (x, s.t())
        return a, b, recorded_bits.options_of(data(), case)
    if case["call"] == "linear24":
        x, s, options = recorded_bits.linear24_operands(data(), case)
        return x, s.t(), options
    a, b = recorded_bits.operands_of(data(), case)
    if case["call"] == "mm24":
        a = tcgemm.compress24(a, prune=True)
    return a, b, recorded_bits.options_of(data(), case)


def emulated(case, **options):
    """The digest of the result; None where no kernel is emulated."""
    data().seed(case["id"])
    a, b, arguments = operands(case)
    shape = (*recorded_bits.batch_of(case), case["m"], case["n"])
    arguments["out"] = recorded_bits.result_of(case, shape, "cpu")
    try:
        arguments |= {"kernel": kernel_of(case), "amax": bool(case.get("amax")), **options}
        result = emulate.mm(a, b, **arguments)
    except RuntimeError as error:
        # Some kernels that were recorded serve fewer problems now.
        assert "no kernel of this build" in str(error)
        return None
    return recorded_bits.digest(*(result if isinstance(result, tuple) else (result,)))


def differing(problems):
    """(the problems with other bits, how many were computed)."""
    digests = {case["id"]: emulated(case) for case in problems}
    digests = {number: digest for number, digest in digests.items() if digest is not None}
    different = {n for n, digest in digests.items() if digest != RECORD[str(n)]["bits"]}
    for case in problems:
        # The record is older than slices of k: what the planner chose then had one slice.
        number = case["id"]
        if number not in different or kernel_of(case) is not None:
            continue
        if emulated(case, batch_invariant=True) == RECORD[str(number)]["bits"]:
            different.remove(number)
    return sorted(different), len(digests)


@pytest.mark.parametrize("part", range(PARTS))
def test_bits_of_a_gpu(part):
    different, count = differing(PROBLEMS[part::PARTS])
    assert count >= 100
    assert different == []


def some(word, count=6):
    return [case for case in PROBLEMS if word in (kernel_of(case) or "")][:count]


def kind(name):
    """The types, and what the mainloop does beside multiplying."""
    words = name.split("_")
    return (*words[1:3], *(word for word in words[7:] if word not in ("pingpong", "rs")))


def test_every_family_is_among_the_problems():
    for arch in ("sm80", "sm89", "sm90a"):
        # The record is older than GEMV, thin and tf32x2 kernels, which test_gemv.py, test_thin.py
        # and test_tf32x2.py have, and than kernels of packed integers and of float64 on sm80, whose
        # sums are as in every other kernel.
        rows = [
            row
            for row in info.catalog()
            if row["arch"] == arch and not row["gemv"] and not row["weight_bits"]
        ]
        rows = [row for row in rows if row["mainloop"] not in ("thin", "tf32x2")]
        names = [row["name"] for row in rows if row["input"] not in ("s4", "u4", "b1")]
        kinds = {kind(name) for name in names if not name.startswith("sm80_f64")}
        served = {kind(kernel_of(case)) for case in some(f"{arch}_", 10**6)}
        assert kinds and kinds <= served, arch


def test_another_length_of_chains_is_refused(monkeypatch):
    problems = [case for case in some("promoted", 20) if case["k"] > 200 and case["out"] != "e5m2"]
    assert len(problems) > 4
    assert differing(problems)[0] == []
    monkeypatch.setattr(sums, "BLOCK", 256)
    assert len(differing(problems)[0]) > len(problems) // 2


def test_another_order_of_terms_is_refused(monkeypatch):
    problems = some("f16x2", 12) + some("bf16x3", 4)
    assert len(problems) == 16 and differing(problems)[0] == []
    chains = split_fp32.chains
    monkeypatch.setattr(split_fp32, "chains", lambda *arguments: chains(*arguments)[::-1])
    assert len(differing(some("f16x2", 12))[0]) > 4
    monkeypatch.setattr(split_fp32, "chains", chains)
    chain = split_fp32._chain
    monkeypatch.setattr(split_fp32, "_chain", lambda k, a, b: chain(k, a[::-1], b[::-1]))
    assert len(differing(problems)[0]) > 8


def test_another_generation_is_refused(monkeypatch):
    monkeypatch.setattr(emulate.product, "architecture", lambda _device: "Ampere")
    different, count = differing(some("sm80_f16_f32"))
    assert count > 3 and len(different) > count // 2


def test_another_rounding_of_tf32_is_refused(monkeypatch):
    monkeypatch.setattr(rounding, "operand", lambda x, _type: x)  # the hardware drops bits
    different, count = differing(some("tf32"))
    assert count > 3 and len(different) > count // 2


def half(*shape):
    return torch.randn(shape).half()


@pytest.mark.parametrize(("device", "arch"), [("A100", "Ampere"), ("H200", "Hopper")])
def test_the_chain_of_the_plan(device, arch):
    a, b = half(40, 100), half(100, 24)
    result = emulate.mm(a, b, out_dtype=torch.float32, device=device, kernel="sm80")
    row = "mma.m16n8k16.f32.f16.f16"
    padded = (torch.nn.functional.pad(a, (0, 12)), torch.nn.functional.pad(b, (0, 0, 0, 12)))
    assert torch.equal(result, emulate.mma(*padded, instruction=row, arch=arch))


def test_tiles_and_batches_have_the_same_bits():
    a, b = half(3, 70, 96), half(96, 130)
    result = emulate.mm(a, b)
    for kernel in ("sm90a_f16_f32_64x64", "sm90a_f16_f32_128x256", "sm80_f16_f32_64x64"):
        assert same_bits(emulate.mm(a[1], b, kernel=kernel), result[1])
    assert same_bits(emulate.mm(a[2, 5:6], b), result[2, 5:6])


def test_fast_float8_loses_bits():
    a, b = torch.rand(40, 4096), torch.rand(4096, 40)  # GEMV kernels, for fewer rows, lose none
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    exact = a.double() @ b.double()
    errors = [
        (emulate.mm(a, b, out_dtype=torch.float32, precision=word) - exact).abs().max()
        for word in ("fast", "promoted")
    ]
    assert errors[0] > 4 * errors[1]


def test_the_argument_of_an_activation():
    x, w, bias = half(16, 64), half(64, 8), half(8)
    argument = emulate.mm(x, w, bias=bias, activation="gelu", before_activation=True)
    assert argument.dtype is torch.float32
    assert torch.equal(argument.half(), emulate.mm(x, w, bias=bias))
    with pytest.raises(NotImplementedError, match=r"tanh\.approx.*before_activation=True"):
        emulate.mm(x, w, activation="gelu")


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 8), (4, 0, 8), (4, 8, 0), (1, 1, 1)])
def test_sizes(m, n, k):
    a, b, bias = half(m, k), half(k, n), half(n)
    result = emulate.mm(a, b, bias=bias)
    assert result.shape == (m, n)
    torch.testing.assert_close(result, tcgemm.mm(a, b, bias=bias))
    result, amax = emulate.mm(a, b, amax=True, out_dtype=torch.float32)
    assert amax == (result.abs().max() if result.numel() else 0)


def test_the_strides_of_the_result_count():
    a, b, scale = half(16, 48), half(48, 24), torch.rand(2)
    out = torch.empty(24, 16, dtype=torch.float16).t()
    options = {"scale_a": scale[:1], "scale_b": scale[1:], "alpha": 0.3}
    assert emulate.mm(a, b, **options, out=out) is out
    torch.testing.assert_close(out, emulate.mm(a, b, **options))


@pytest.mark.parametrize("pattern", ["2:4", "1:2"])
def test_sparse_operands(pattern):
    w = torch.randn(40, 70)
    w = w if pattern == "1:2" else w.half()
    s = tcgemm.compress24(tcgemm.prune24(w, pattern=pattern), pattern=pattern)
    x = torch.randn(9, 70).to(w.dtype)
    precision = {"precision": "high"} if pattern == "1:2" else {}
    for a, b in ((x, s.t()), (s, x.t())):
        exact = (a if a is x else a.to_dense()).double() @ (b.to_dense() if a is x else b).double()
        result = emulate.mm(a, b, **precision)
        torch.testing.assert_close(result.double(), exact, rtol=1e-2, atol=3e-2)
    product = emulate.mm(x.new_ones(3, 40), s, **precision)  # the groups lie along the columns
    expected = emulate.mm(x.new_ones(3, 40), s.to_dense(), **precision)
    assert torch.equal(product, expected)


def test_results_need_no_gradients():
    a = half(4, 16).requires_grad_()
    assert not emulate.mm(a, half(16, 4)).requires_grad


SIZES = {"a": (8, 16), "b": (16, 8)}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"device": "B200"}, RuntimeError, "B200"),
        ({"device": None}, TypeError, "needs the name of a GPU"),
        ({"kernel": "sm99"}, RuntimeError, "sm99"),
        ({"b": (8, 8)}, RuntimeError, "a has 16 columns"),
        ({"a": (16,)}, ValueError, r"a has the shape \(16,\), .* two or three dimensions"),
        ({"a": (2, 2, 8, 16)}, ValueError, "emulate.mm multiplies matrices"),
        ({"activation": "tanh"}, RuntimeError, "tanh"),
    ],
)
def test_a_sentence_for(options, error, words):
    a, b = (torch.ones(options.pop(name, size)).half() for name, size in SIZES.items())
    with pytest.raises(error, match=words):
        emulate.mm(a, b, **options)


def test_a_prepared_weight_gets_a_sentence():
    w = tcgemm.prepare(torch.randn(64, 64))
    with pytest.raises(
        NotImplementedError, match=r"b is a prepared weight.*pass the weight itself"
    ):
        emulate.mm(torch.randn(64, 64), w.t())


def test_speed():
    """512^3 in seconds: a slow inner loop would make the emulator useless for whole products."""
    a, b = half(512, 512), half(512, 512)
    start = time.perf_counter()
    emulate.mm(a, b)
    assert time.perf_counter() - start < 20  # 0.6 s on two free cores
