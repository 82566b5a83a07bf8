"""Measures one case: tcgemm and its baselines in alternating slices, and the error of tcgemm."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from tcgemm.measure import baseline, machine, telemetry, timing
from tcgemm.measure.case import Case
from tcgemm.measure.compare.request import BASELINES, refuse
from tcgemm.measure.compare.subbyte import SubbyteWork
from tcgemm.measure.workloads import Workload, baseline_name, dense_baseline_name

METHOD = (
    "normal data, operand sets past twice the L2, CUDA graphs (CPU: wall clock), candidates in "
    "alternating slices, medians with interquartile ranges"
)
DENSE = "torch dense"  # torch's dense product beside its sparse one
Functions = dict[str, Callable[..., Any] | None]
Work = Workload | SubbyteWork  # or a class with the same methods


def head(case: Case) -> dict[str, Any]:
    """The fields that say what a row is about; the fields of the measurement are None."""
    return {
        "function": case.op,
        "dtype": case.dtype,
        "layout": case.layout,
        "batch": case.batch,
        "m": case.m,
        "n": case.n,
        "k": case.k,
        "epilogue": "+".join(case.terms),
        "accumulation": case.accumulation,
        "kernel": None,
        "us": None,
        "iqr_us": None,
        "tflops": None,
        "gbps": None,
        "ratios": {},
        "baselines": {},
        "refused": {},
        "max_error_ratio": None,
        "exact": None,
        "clock_mhz": None,
        "power_w": None,
        "why": "",
    }


def row_of(build: Callable[[], Work], first: dict[str, Any], **options: Any) -> dict[str, Any]:
    """`first` with the measurement of build(), or with the reason why there is none."""
    try:
        return first | measure(build(), **options)
    except Exception as error:
        _check_gpu(error)
        return first | {"why": f"tcgemm failed: {baseline.reason(error)}"}


def _check_gpu(error: Exception) -> None:
    """Raises if the GPU is lost: after an illegal access every later call fails as well."""
    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        text = f"the GPU no longer answers after {baseline.reason(error)!r}; start a new process."
        raise refuse(text) from error


def measure(
    work: Work,
    functions: Functions,
    *,
    seconds: float,
    reader_of: Callable[[torch.device], Any] = lambda device: None,
) -> dict[str, Any]:
    """The fields of a measured row. reader_of: the reader of a GPU's clock and power."""
    sampler = telemetry.Sampler(reader_of(work.device))
    with machine.current(work.device):
        error, exact = work.check()
        calls, names, refusals = _candidates(work, functions)
        timings = timing.measure(
            calls,
            work.sets,
            device=work.device,
            min_ms=seconds * 1e3,
            sampler=sampler,
            refusals=refusals,
        )
    result = timings.pop("tcgemm")
    (kernel, reason), traffic = work.plan, work.bytes
    finite = error if error is not None and math.isfinite(error) else None
    return {
        "kernel": kernel,
        "us": round(result.us, 3),
        "iqr_us": round(result.iqr_us, 3),
        "tflops": float(f"{work.case.flops / result.us / 1e6:.5g}"),
        "gbps": None if traffic is None else float(f"{traffic / result.us / 1e3:.5g}"),
        "ratios": {name: float(f"{sample.us / result.us:.5g}") for name, sample in timings.items()},
        "baselines": {
            name: {
                "name": names[name],
                "us": round(sample.us, 3),
                "iqr_us": round(sample.iqr_us, 3),
            }
            for name, sample in timings.items()
        },
        "refused": refusals,
        "max_error_ratio": None if finite is None else round(finite, 4),
        "exact": False if error is not None and finite is None else exact,
        "clock_mhz": sampler.clock_mhz,
        "power_w": sampler.power_w,
        "why": reason,
    }


def _candidates(
    work: Work, functions: Functions
) -> tuple[dict[str, Callable[[int], Any]], dict[str, str], dict[str, str]]:
    """({name: call}, {name: what it calls}, {name: why it is not called})."""
    runs = work.candidates()
    calls, names, refusals = {}, {}, {}
    torch_refuses = baseline.refusal(runs["baseline"]) if set(BASELINES) & set(functions) else None
    for name, function in functions.items():
        if function is not None:
            calls[name], names[name] = functools.partial(_call, work, function), name
        elif name == "torch":
            if torch_refuses:
                refusals[name] = torch_refuses
            else:
                calls[name], names[name] = runs["baseline"], baseline_name(work.case)
            if "dense" in runs:
                calls[DENSE], names[DENSE] = runs["dense"], dense_baseline_name(work.case)
        elif "sparse" in work.case.terms:
            refusals[name] = "torch.compile knows no 2:4 product of cuSPARSELt"
        elif torch_refuses:  # compiling it would only say so at length
            refusals[name] = torch_refuses
        else:
            compiled = baseline.compiled_product()
            calls[name] = functools.partial(work.call_product, compiled)
            names[name] = f"torch.compile of {baseline_name(work.case)}"
    for name, call in list(calls.items()):
        refusal = baseline.refusal(call)
        if refusal is not None:
            refusals[name] = refusal
            del calls[name]
    return {"tcgemm": runs["tcgemm"], **calls}, names, refusals


def _call(work: Work, function: Callable[..., Any], index: int) -> None:
    """A function of the caller on set `index`, with the options that the case has."""
    options = {
        "bias": work.bias,
        "activation": work.activation,
        "residual": work.residual,
        "scale_a": work.scale_a,
        "scale_b": work.scale_b,
    }
    arguments = {name: value for name, value in options.items() if value is not None}
    function(work.operands.a[index], work.operands.b[index], **arguments)
