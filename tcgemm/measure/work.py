"""The measurement of a case that was made runnable: one row of results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from tcgemm.measure import baseline, machine, results, telemetry, timing
from tcgemm.measure.case import FLOAT8, PASSES, Case
from tcgemm.measure.results import Aims, Row
from tcgemm.measure.timing import Call, Timing

if TYPE_CHECKING:
    from tcgemm.measure.workloads import Workload

METHOD = (
    "normal data, operand sets past twice the L2, CUDA graphs (CPU: wall clock), candidates in "
    "alternating slices, medians with interquartile ranges"
)
TORCH, COMPILED, DENSE, FUSED = "torch", "torch.compile", "torch dense", "torch fused"
F32_SUMS = "torch f32 sums"
# Epilogues of a linear for which torch has one call, and that call.
IN_ONE_CALL = {"bias+relu": "torch._addmm_activation", "residual": "torch.addmm"}
# The epilogue for which torch has one call beside the two that most users write: both are measured.
ALSO_FUSED = "bias+gelu_tanh"
PASS_BASELINES = {"compress": "torch._cslt_compress", "prune": "torch._sparse_semi_structured_tile"}
# The fields of a row that a case has under the same name.
FIELDS = ("dtype", "layout", "batch", "m", "n", "k", "accumulation")
Checks = tuple[float | None, bool | None]  # the largest error over its bound, exact


def baseline_name(case: Case) -> str:
    """The name of the baseline of this case, such as 'torch.mm' or 'torch linear + gelu'."""
    if case.op in PASSES:
        return PASS_BASELINES[case.op]
    if sparse := sparse_baseline(case):
        return sparse.name
    if in_one_call(case):
        return IN_ONE_CALL[case.epilogue]
    if case.op not in ("linear", "train"):
        return dense_baseline_name(case)
    first = dense_baseline_name(case) if case.dtype in FLOAT8 else "torch linear"
    parts = (first, case.activation, "add" if "residual" in case.terms else None)
    text = " + ".join(part for part in parts if part)
    return f"{text}, forward and backward" if case.op == "train" else text


def in_one_call(case: Case) -> bool:
    """Is the baseline one call of torch, although the epilogue has several terms?"""
    return case.op == "linear" and case.epilogue in IN_ONE_CALL and case.dtype not in FLOAT8


def sparse_baseline(case: Case) -> Any:
    """The class of tcgemm.measure.baseline for a sparse case, or None."""
    if "sparse" not in case.terms or case.dtype == "tf32":
        return None
    return baseline.CusparseltGemm if case.graph else baseline.SemiStructuredLinear


def dense_baseline_name(case: Case) -> str:
    """The name of torch's dense GEMM of this case."""
    return baseline.name(case.dtype, case.op, accumulation=case.accumulation)


def case_fields(case: Case, device: torch.device | str) -> Row:
    """The fields of a row that say what it is about."""
    fields = {"set": case.set} if case.set else {}
    return fields | {
        "function": case.op,
        **{name: getattr(case, name) for name in FIELDS},
        "epilogue": "+".join(case.terms),
        "graph": case.graph and torch.device(device).type == "cuda",
    }


def case_from(row: Row) -> Case:
    """The case that a row is about. A set such as "squares:sm80" has the kernels of this name."""
    row = results.DEFAULTS | {"set": ""} | row
    fields = {name: row[name] for name in ("set", *FIELDS, "graph")}
    kernel = row["set"].partition(":")[2]
    return Case(row["function"], **fields, epilogue=row["epilogue"] or "none", kernel=kernel)


def failed(case: Row, error: BaseException) -> Row:
    """The row of a case that raised an error. It raises if the GPU is lost: after an illegal access
    every later call fails as well."""
    reason = baseline.reason(error)
    if torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError:
            raise GpuLost(
                f"the GPU no longer answers after {reason!r}; start a new process."
            ) from error
    return case | results.EMPTY | {"why": f"tcgemm failed: {reason}", "date": machine.now()}


class GpuLost(RuntimeError):
    """Nothing more can be measured in this process."""


def measure(
    work: Workload,
    calls: Mapping[str, Call] | None = None,
    names: Mapping[str, str] | None = None,
    refused: dict[str, str] | None = None,
    *,
    ms: float = results.MS,
    checks: Checks | None = None,
    aims: Aims | None = None,
) -> Row:
    """The row of one measurement.

    The work is checked first, unless `checks` has what an earlier repetition found.

    Arguments:
        calls, names: the candidates, "tcgemm" among them, and the functions that they call; those
            of the work by default. A baseline that raises is left out, with the reason in `refused`
            of the row.
        refused: baselines that are known not to run, and why.
        ms (float): the time of a candidate in milliseconds.
        aims: targets of the ratios. With them a measurement ends early where all ratios are clear.
    """
    case, refused = work.case, dict(refused or {})
    sampler, row = telemetry.Sampler(work.device), case_fields(case, work.device) | results.EMPTY

    def is_clear(timings: Mapping[str, Timing]) -> bool:
        others = {name: t for name, t in timings.items() if name != "tcgemm"}
        return aims is not None and results.is_clear(ratios_of(timings["tcgemm"], others), aims)

    with machine.current(work.device):
        error, exact = checks or work.check()
        candidates = dict(work.candidates() if calls is None else calls)
        names = work.names() if names is None else names
        for name in [name for name in candidates if name.startswith("torch") or name in names]:
            if reason := baseline.refusal(candidates[name]):
                refused[name] = reason
                del candidates[name]
        if case.graph:
            common = {"device": work.device, "min_ms": ms, "sampler": sampler, "enough": is_clear}
            common |= {"refusals": refused, "needed": "tcgemm"}
            timings = timing.measure(candidates, work.sets, **common)
        else:
            with sampler:
                timings = timing.host_time(candidates, work.sets, device=work.device)
        facts, plan, traffic = work.facts(timings), work.plan, work.bytes
    facts |= results.busy(timings.values())
    own = timings.pop("tcgemm")
    if case.graph and case.flops:
        row["tflops"] = results.figures(case.flops / own.us / 1e6)
    if error is not None:
        row["max_error_ratio"] = round(error, 4) if math.isfinite(error) else None
        exact = exact if math.isfinite(error) else False
    return (
        row
        | times(own, timings, names)
        | sampler.fields()
        | {
            "kernel": plan.launch or plan.kernel,
            "gbps": results.figures(traffic / own.us / 1e3) if traffic else None,
            "refused": refused,
            "exact": exact,
            "why": plan.why,
            "facts": facts,
            "date": machine.now(),
        }
    )


def times(own: Timing, others: Mapping[str, Timing], names: Mapping[str, str] | None = None) -> Row:
    """The fields of a time, and of others beside it. names: {candidate: what it calls}."""

    def rounded(timing: Timing) -> Row:
        return {"us": round(timing.us, 3), "iqr_us": round(timing.iqr_us, 3)}

    baselines = {
        name: {"name": (names or {}).get(name, name)} | rounded(t) for name, t in others.items()
    }
    return rounded(own) | {"ratios": ratios_of(own, others), "baselines": baselines}


def ratios_of(own: Timing, others: Mapping[str, Timing]) -> dict[str, float]:
    """{candidate: its time divided by tcgemm's}."""
    return {name: results.figures(timing.us / own.us) for name, timing in others.items()}
