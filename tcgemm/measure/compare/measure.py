"""The rows of tcgemm.compare, and the candidates of each."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from tcgemm.measure import baseline, results
from tcgemm.measure.amx import avoid_forbidden_amx
from tcgemm.measure.command_line import Interrupted
from tcgemm.measure.compare.request import BASELINES, COMPARE
from tcgemm.measure.compare.result import Comparison, Row, size
from tcgemm.measure.timing import Call
from tcgemm.measure.work import COMPILED, DENSE, TORCH, GpuLost, failed, measure

Functions = dict[str, Callable[..., Any] | None]
Candidates = tuple[dict[str, Call], dict[str, str], dict[str, str]]
Job = tuple[Callable[[], Any], Row]  # what builds the operands, the first fields of the row


def measured(
    jobs: list[Job],
    functions: Functions,
    *,
    device: torch.device,
    seconds: float,
    progress: Callable[[str], None],
    result: Callable[[list[Row]], Comparison],
) -> Comparison:
    """The result of the jobs' rows. After Ctrl-C, Interrupted has that of the rows so far."""
    rows: list[Row] = []
    if device.type == "cpu" and (sentence := avoid_forbidden_amx()):
        progress(sentence)
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            for number, (build, case) in enumerate(jobs, 1):
                row = _row_of(build, case, functions, seconds)
                rows.append(row)
                name = f"{row['function']} {row['dtype']} {row['layout']} {size(row)}"
                progress(f"{number} of {len(jobs)}: {results.line(name, row)}")
    except KeyboardInterrupt as error:
        raise Interrupted(result(rows)) from error
    return result(rows)


def _row_of(build: Callable[[], Any], case: Row, functions: Functions, seconds: float) -> Row:
    """The row of build(), whose operands end with this call, or the reason why there is none."""
    try:
        work = build()
        return measure(work, *_candidates(work, functions), ms=seconds * 1e3) | case
    except Exception as error:
        try:
            return failed(case, error)
        except GpuLost as lost:
            raise COMPARE.refuse(str(lost)) from error


def _candidates(work: Any, functions: Functions) -> Candidates:
    """({name: call}, {name: what it calls}, {name: why it is not called})."""
    runs, texts = work.candidates(), work.names()
    calls, names, refused = {"tcgemm": runs["tcgemm"]}, {}, {}
    torch_refuses = baseline.refusal(runs[TORCH]) if set(BASELINES) & set(functions) else None
    for name, function in functions.items():
        if function is not None:
            calls[name], names[name] = functools.partial(_call, work, function), name
        elif name == TORCH:
            calls[name], names[name] = runs[TORCH], texts[TORCH]
            if DENSE in runs:
                calls[DENSE], names[DENSE] = runs[DENSE], texts[DENSE]
        elif "sparse" in work.case.terms:
            refused[name] = "torch.compile knows no 2:4 product of cuSPARSELt"
        elif torch_refuses:  # compiling it would only say so at length
            refused[name] = torch_refuses
        else:
            calls[COMPILED] = functools.partial(work.call_product, baseline.compiled_product())
            names[COMPILED] = f"torch.compile of {texts[TORCH]}"
    return calls, names, refused


def _call(work: Any, function: Callable[..., Any], index: int) -> None:
    """A function of the caller on set `index`, with the options that the case has."""
    options = work.epilogue | {"scale_a": work.scale_a, "scale_b": work.scale_b}
    arguments = {name: value for name, value in options.items() if value is not None}
    function(*work.given(index), **arguments)
