"""The measuring tools for 2:4 sparsity: operands, baselines, passes."""

from dataclasses import replace

import pytest
import torch
from torch.sparse import _semi_structured_conversions as conversions

import tcgemm
from tcgemm.measure import baseline, operands, workloads, works
from tcgemm.measure.case import PASSES, Case
from tcgemm.measure.cases import cases as cases_of
from tcgemm.measure.results import is_wrong
from tcgemm.measure.work import baseline_name, measure
from tcgemm.measure.works import Pass, work_of
from tcgemm.ops import operators

SMOKE = cases_of("smoke-sparse")


def each(*ops):
    """A test for each small sparse case of these operations."""
    chosen = [case for case in SMOKE if case.op in ops]
    names = [f"{case.op}-{case.dtype}-{case.size}-{case.epilogue}" for case in chosen]
    return pytest.mark.parametrize("case", chosen, ids=names)


@each("mm")
def test_dense_products_multiply_the_same_weight(case):
    work = workloads.Workload(case, "cpu")
    pools = work.operands
    for weight, b in zip(work.weights, pools.b, strict=True):
        assert torch.equal(works.bits(weight.to_dense()), works.bits(b.t()))
        assert weight.pattern == ("1:2" if case.dtype == "tf32" else "2:4")
        assert 0.3 < float((b.float() == 0).float().mean()) < 0.6
    assert work.bytes < sum(pool[0].nbytes for pool in (pools.a, pools.b, pools.out))


def test_rotation_counts_what_is_read(monkeypatch):
    monkeypatch.setattr(operands, "cache_bytes", lambda device: 1 << 20)
    work = workloads.Workload(Case("mm", "bf16", "TN", 16, 512, 512, epilogue="sparse"), "cpu")
    size = sum(tensor.nbytes for tensor in work.weights[0].tensors().values())
    assert work.sets * size > 2 << 20


def test_a_forced_kernel_reaches_the_operator(monkeypatch):
    names = []
    keywords = operators.Scaled.keywords
    monkeypatch.setattr(
        operators.Scaled,
        "keywords",
        lambda self, *options: names.append(self.kernel_name) or keywords(self, *options),
    )
    case = cases_of("smoke-sparse", ("bf16",), None, "128x64")[0]
    for graph in (True, False):
        work = workloads.Workload(replace(case, graph=graph), "cpu")
        work.call_tcgemm(0)
    assert names == ["128x64", "128x64"] and case.set == "smoke-sparse:128x64"
    assert "128x64x64" in work.plan_on().kernel and work.plan_on().kernel.endswith("_sparse")


@each("linear")
def test_host_cases_call_what_users_call(case, monkeypatch):
    work = workloads.Workload(case, "cpu")
    layers = [isinstance(call, tcgemm.nn.SparseLinear24) for call in work.linears]
    assert all(layers) if "layer" in case.terms else not any(layers)
    ratio, exact = work.check()
    assert ratio <= 1 and exact
    weights = []
    monkeypatch.setattr(
        torch.sparse, "to_sparse_semi_structured", lambda w: weights.append(w) or w.contiguous()
    )
    calls = work.candidates()
    assert list(calls) == ["tcgemm", "tcgemm dense", "torch"]
    for call in calls.values():
        call(1)
    assert len(weights) == work.sets and baseline_name(case) == baseline.SemiStructuredLinear.name


class Library:
    """Stands in for cuSPARSELt, and sees how it is called."""

    def __init__(self, monkeypatch):
        self.searched, self.compressed, self.used = [], [], []
        monkeypatch.setattr(torch, "_cslt_compress", self.compress)
        monkeypatch.setattr(torch, "_cslt_sparse_mm_search", self.search)
        monkeypatch.setattr(torch, "_cslt_sparse_mm", self.multiply)
        monkeypatch.setattr(baseline, "replayed_us", self.replayed_us)

    def compress(self, w):
        assert w.is_contiguous()
        self.compressed.append(w)
        return w

    def search(self, w, x, **options):
        self.searched.append((w, x, options))
        return 7

    def replayed_us(self, call):
        """The time of an f16 call: 15 algorithms are tried one by one; number 7 is the fastest."""
        *tensors, algorithm = *call.args, call.keywords["alg_id"]
        if algorithm == 0:
            self.searched.append((*tensors, {}))
        if algorithm == 15:
            raise RuntimeError("invalid value when calling cusparseLtMatmulAlgSetAttribute")
        return 1.0 + abs(algorithm - 7)

    def multiply(self, w, x, *, alg_id, transpose_result, out_dtype=None):
        assert alg_id == 7 and transpose_result
        self.used.append(next(i for i, weight in enumerate(self.compressed) if weight is w))
        return (x.t().double() @ w.t().double()).to(out_dtype or x.dtype)


@each("mm")
def test_the_baseline_is_the_best_algorithm_of_cusparselt(case, monkeypatch):
    work = workloads.Workload(case, "cpu")
    library, calls = Library(monkeypatch), work.candidates()
    if case.dtype == "tf32":
        assert list(calls) == ["tcgemm", "tcgemm dense", "torch"]
        assert baseline_name(case) == "torch.mm allow_tf32" and not library.compressed
        return
    to_bf16 = "to-bf16" in case.terms
    names = ["tcgemm", "tcgemm dense", "torch", "torch dense"]
    assert list(calls) == names[: 3 if to_bf16 else 4]
    assert baseline_name(case) == "torch._cslt_sparse_mm"
    assert baseline.refusal(calls["torch"]) is None  # the first call makes what all need
    calls["torch"](1)
    assert library.used == [0, 1] and len(library.compressed) == work.sets
    results = work.sparse_call.results
    assert results[0].data_ptr() != results[1].data_ptr()  # outside the cache, as ours are
    ((_, x, options),) = library.searched
    wide = {"s8": torch.bfloat16 if to_bf16 else torch.int32, "e4m3": torch.bfloat16}
    assert x.shape == (case.k, case.m) and options.get("out_dtype") == wide.get(case.dtype)
    work.call_tcgemm(1)
    torch.testing.assert_close(results[1], work.operands.out[1], rtol=2e-2, atol=1e-2)
    work.refill()
    calls["torch"](0)
    assert len(library.compressed) == 2 * work.sets  # of the new weights


@each(*PASSES)
def test_passes_are_checked(case):
    work = Pass(case, "cpu")
    assert work.check() == (0.0, True)
    original = work.call_tcgemm

    def broken(index):
        result = original(index)
        first = result if case.op == "prune" else result[0]
        first[-1, -4:] = first[-1, -4:].roll(1)
        return result

    work.call_tcgemm = broken
    assert work.check() == (0.0, False)
    assert work.bytes > 1.5 * work.operands.a[0].nbytes


def test_a_choice_that_keeps_less_is_seen():
    every = works.transposable_masks("cpu").view(-1, 4, 4)
    assert len(every) == 90 == len(every.unique(dim=0))
    assert (every.sum(1) == 2).all() and (every.sum(2) == 2).all()
    w = torch.randn(16, 16)
    best = tcgemm.prune24(w, method="transposable", pattern="2:4")
    assert works.is_best(w, best)
    assert not works.is_best(w, tcgemm.prune24(w, pattern="2:4"))  # not of columns
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]).repeat(4, 4)
    assert not works.is_best(w, w * mask)
    doubled = best.clone()
    doubled[best != 0] *= 2.0
    assert not works.is_best(w, doubled)


def test_what_is_kept_is_measured_beside_torch(monkeypatch):
    case = next(case for case in SMOKE if case.op == "prune")
    work = Pass(case, "cpu")
    greedy = conversions._sparse_semi_structured_tile

    def tile(w, algorithm=""):
        if algorithm != "largest_abs_values_greedy":
            return (greedy(w.clone()),)
        return torch.ops.tcgemm.compress24(greedy(w.abs()), "2:4")[:2]

    monkeypatch.setattr(torch, "_sparse_semi_structured_tile", tile)
    facts = work.facts({"torch": None})
    assert 0.6 < facts["torch_kept"] < facts["kept"] < 0.8
    assert "torch_kept" not in work.facts({})
    assert baseline_name(case) == "torch._sparse_semi_structured_tile"


def test_torch_compresses_what_is_pruned(monkeypatch):
    case = next(case for case in SMOKE if case.op == "compress")
    weights = []
    monkeypatch.setattr(torch, "_cslt_compress", weights.append)
    work = Pass(case, "cpu")
    results = [work.candidates()["torch"](index) for index in (1, 0)]
    assert results == [None, None] and len(weights) == 2
    assert torch.equal(weights[0], tcgemm.prune24(work.operands.a[1]))


@pytest.mark.gpu
@pytest.mark.sm90
def test_sparse_cases_on_a_gpu():
    for case in SMOKE:
        k = 1 if case.op in PASSES else 512
        # At this size, an f16 algorithm of cuSPARSELt may not terminate: baseline.SAFE_ALGORITHMS.
        has_baseline = case.dtype != "f16"
        case = replace(case, m=512, n=k, k=512, baseline=has_baseline)
        row = measure(work_of(case, "cuda"), ms=20.0)
        assert row["us"] and not is_wrong(row), (case, row)
        assert case.op in PASSES or "_sparse@" in row["kernel"]
        if torch.backends.cusparselt.is_available() and has_baseline:
            assert not row["refused"] and row["ratios"]["torch"] > 0, (case, row)
        if case.op == "prune":
            assert 0.6 < row["facts"]["torch_kept"] < row["facts"]["kept"] < 0.8
