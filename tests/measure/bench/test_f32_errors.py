"""f32 products with precision="highest" err at most as torch's, on every kind of data; and the
table that says so (python -m benchmarks run --set errors) sees results that are wrong.

The CPU's definition is held to the bound of its roundings, CUDA's to torch.mm in the same run.
"""

import math

import pytest
import torch

from benchmarks.experiments import EXPERIMENTS, patterns
from benchmarks.experiments import errors as fp32_errors
from tcgemm.measure import results, run

from support import split_terms
from support.bench_fixtures import run_on_cpu

DEPTHS = (1, 3, 16, 64, 100, 1000, 4096)


def row(kind, k, gemm, torch_gemm=fp32_errors.torch_mm, layout="TN"):
    """The table's row of the result of `gemm`, beside torch's."""
    job = fp32_errors.Errors(kind, layout, 64, 72, k)
    return job.row("cpu", gemm=gemm, torch_gemm=torch_gemm)


# The products.


@pytest.mark.parametrize("kind", patterns.PATTERNS)
@pytest.mark.parametrize("layout", fp32_errors.LAYOUTS)
def test_cpu_is_within_the_bound(kind, layout):
    for k in DEPTHS:
        result = row(kind, k, fp32_errors.tcgemm_mm, None, layout)
        assert fp32_errors.is_good(result), result


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize("kind", patterns.PATTERNS)
@pytest.mark.parametrize("layout", fp32_errors.LAYOUTS)
def test_cuda_errs_at_most_as_torch(kind, layout):
    sizes = [(512, 512, k) for k in DEPTHS] + [(1000, 520, 512), (1024, 1024, 2048)]
    for *size, k in sizes:
        job = fp32_errors.Errors(kind, layout, *size, k)
        result = job.row("cuda", torch_gemm=fp32_errors.torch_mm)
        if kind in fp32_errors.NOT_COMPARED:
            result["facts"]["baseline_errors"] = fp32_errors.bound("cuda", k)
        assert fp32_errors.is_good(result), result


# The judge, on results that are wrong.


def right(a, b):
    return (a.double() @ b.double()).float()


@pytest.mark.parametrize(
    ("way", "kind"),
    [(way, kind) for way in split_terms.KINDS for kind in ("normal", "uniform")]
    + [("bf16", "elements")],
)
def test_each_part_product_is_needed(way, kind):
    for k in (128, 1024):
        assert fp32_errors.is_good(row(kind, k, lambda a, b: split_terms.product(a, b, way)))
    for index, pair in enumerate(split_terms.KINDS[way][-1]):
        result = row(kind, 128, lambda a, b, index=index: split_terms.product(a, b, way, index))
        assert not fp32_errors.is_good(result), pair


def dropped_step(a, b):
    return right(a[:, :-16], b[:-16])


def repeated_step(a, b):
    return right(a, b) + right(a[:, :16], b[:16])


def zero_tile(a, b):
    out = right(a, b)
    out[16:24, 8:16] = 0
    return out


def unwritten(a, b):
    out = right(a, b)
    out[-1, -1] = math.nan
    return out


def low_bits(a, b):
    return right(a, b) * (1 + 2.0**-18)


def one_row(a, b):
    out = right(a, b)
    out[5] *= 1 + 2.0**-14
    return out


FAULTS = (dropped_step, repeated_step, zero_tile, unwritten, low_bits, one_row)


@pytest.mark.parametrize("kind", ["normal", "uniform", "rows", "elements", "special", "subnormal"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(kind, fault):
    for k in (32, 256):
        assert not fp32_errors.is_good(row(kind, k, fault))
        assert fp32_errors.is_good(row(kind, k, right))
    if fault in (dropped_step, zero_tile, unwritten):
        assert not fp32_errors.is_good(row("normal", 256, fault, torch_gemm=None))


def without_nan(a, b):
    return right(a, b).nan_to_num(nan=1.0, posinf=math.inf, neginf=-math.inf)


def without_inf(a, b):
    return right(a, b).clamp(-fp32_errors.LARGEST, fp32_errors.LARGEST)


def other_sign(a, b):
    out = right(a, b)
    return torch.where(out.isinf(), -out, out)


@pytest.mark.parametrize("fault", [without_nan, without_inf, other_sign])
def test_inf_and_nan_are_those_of_fp32(fault):
    for kind in ("special", "special-elements"):
        result = row(kind, 64, fault)
        assert result["facts"]["errors"]["wrong"] > 0


# Where results overflow, and where they vanish.


def outcome(a, b, out):
    """{max, rms, wrong} of one element."""
    a, b = (torch.tensor(values, dtype=torch.float32) for values in (a, b))
    return fp32_errors.Reference(a.unsqueeze(0), b.unsqueeze(1)).errors(torch.tensor([[out]]))


LARGE, INF = 2.0**127, math.inf


@pytest.mark.parametrize(
    ("b", "right", "wrong"),
    [
        # The sum fits, however it is made.
        ([0.75, 0.5, -0.75, 0.5], [LARGE], [INF, math.nan, -LARGE]),
        # It does not fit, and nothing goes the other way.
        ([1.0, 1.0, 0.5, 1.0], [INF], [-INF, math.nan, LARGE]),
        # It fits, but the sum of what is positive does not.
        ([1.5, 1.0, -1.0, 0.0], [1.5 * LARGE, INF], [-INF, math.nan, LARGE]),
        # Neither the positive nor the negative ones fit.
        ([1.5, 1.5, -1.5, -1.0], [0.5 * LARGE, INF, -INF, math.nan], [-0.5 * LARGE, 0.0]),
        # Right at the border: float64 rounds to Inf what f32 need not.
        ([1.0, 1.0, 0.0, 0.0], [INF, fp32_errors.LARGEST], [-INF, math.nan, LARGE]),
    ],
)
def test_overflow(b, right, wrong):
    a = [LARGE] * 4
    for out in right:
        assert outcome(a, b, out)["wrong"] == 0, out
    for out in wrong:
        result = outcome(a, b, out)
        assert result["wrong"] == 1 or result["max"] is None or result["max"] > 100, out


def test_a_subnormal_result_may_be_rounded():
    tiny = 2.0**-75
    assert outcome([tiny], [1.5 * tiny], 2.0**-149) == {"max": 0.5, "rms": 0.5, "wrong": 0}
    assert outcome([tiny], [1.5 * tiny], 0.0)["max"] == 1.5


# The data.


def test_data_is_the_same_in_each_layout_and_run():
    for kind in patterns.PATTERNS:
        a, b = patterns.operands(kind, "TN", 20, 24, 40, "cpu")
        transposed = patterns.operands(kind, "NT", 20, 24, 40, "cpu")
        assert a.dtype == torch.float32 and a.is_contiguous() and b.mT.is_contiguous()
        assert transposed[0].mT.is_contiguous() and transposed[1].is_contiguous()
        assert torch.equal(a.nan_to_num(), transposed[0].nan_to_num())
        assert torch.equal(b.nan_to_num(), transposed[1].nan_to_num())


def spread(x, dim):
    """Exponents between the largest and the smallest element of each row, zeros left out."""
    size = x.double().abs()
    low = torch.where(size == 0, math.inf, size).amin(dim)
    return (size.amax(dim) / low).log2()


def test_data_is_of_its_kind():
    data = {kind: patterns.operands(kind, "NN", 256, 200, 512, "cpu") for kind in patterns.PATTERNS}
    results = {kind: a.double() @ b.double() for kind, (a, b) in data.items()}
    assert (results["rows"].abs() > fp32_errors.LARGEST).any()
    assert (results["rows"].abs() < fp32_errors.SMALLEST_NORMAL).any()
    assert fp32_errors.Reference(*data["rows"]).measured.double().mean() > 0.8
    for kind in ("along-k", "both-k", "elements"):
        assert spread(data[kind][0], 1).min() > 30 and spread(data[kind][1], 0).min() > 30
    wide = spread(data["odd-rows"][0], 1) > 30, spread(data["odd-rows"][1], 0) > 30
    assert [int(flags.sum()) for flags in wide] == [3, 2]
    assert results["odd-rows"].abs().max() < 2.0**20
    a, _ = data["subnormal"]
    assert a.abs().max() < fp32_errors.SMALLEST_NORMAL and a.ne(0).double().mean() > 0.99
    for kind in ("special", "special-elements"):
        assert all((results[kind] == value).any() for value in (INF, -INF))
        assert 0 < results[kind].isnan().sum() < 0.1 * results[kind].numel()


# The set.


def test_a_run_measures_and_judges(tmp_path, capsys, monkeypatch):
    arguments = (tmp_path / "cpu.json", "--set", "errors", "--max-size", "32", "--layout", "TN")
    two = {name: patterns.PATTERNS[name] for name in ("normal", "sparse")}
    monkeypatch.setattr(patterns, "PATTERNS", two)
    status, rows = run_on_cpu(*arguments)
    assert status == 0
    assert "12 of 12 cases done, 0 failed or wrong." in capsys.readouterr().out
    assert [row["k"] for row in rows if row["data"] == "normal"] == [1, 2, 4, 8, 16, 32]
    for row in rows:
        assert row["us"] > 0
        assert (row["max_error_ratio"] is None) == (row["data"] == "sparse")

    monkeypatch.setattr(fp32_errors.Errors.row, "__kwdefaults__", {"gemm": zero_tile})
    assert run_on_cpu(*arguments)[0] == 1
    out = capsys.readouterr().out
    assert "WRONG RESULT" in out and "12 of 12 cases done, 6 failed or wrong." in out


def test_the_jobs_have_every_depth_and_a_gpu_a_large_size_too():
    jobs = EXPERIMENTS["errors"](run.parse(["--set", "smoke", "--device", "cuda"]))
    device = torch.device("cuda")
    rows = [row for job in jobs for row in job.cases(device)]
    assert len(rows) == len({results.key(row) for row in rows}) == 12 * (2 * 14 + 4)
    assert {job.plan("H200") for job in jobs if job.k == 8192} != {"cpu"}
