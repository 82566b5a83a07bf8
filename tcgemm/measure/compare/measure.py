"""The candidates of tcgemm.compare, and the row of one case."""

import functools
from collections.abc import Callable
from typing import Any

from tcgemm.measure import baseline
from tcgemm.measure.compare.request import BASELINES, refuse
from tcgemm.measure.results import Row
from tcgemm.measure.timing import Call
from tcgemm.measure.work import COMPILED, DENSE, TORCH, GpuLost, failed, measure

Functions = dict[str, Callable[..., Any] | None]
Candidates = tuple[dict[str, Call], dict[str, str], dict[str, str]]


def row_of(
    build: Callable[[], Any],
    case: Row,
    *,
    functions: Functions,
    seconds: float,
) -> Row:
    """The row of build(), or the reason why there is none. `case` has the first fields."""
    try:
        work = build()
        calls, names, refused = candidates(work, functions)
        return measure(work, calls, names, refused, ms=seconds * 1e3) | case
    except GpuLost:
        raise
    except Exception as error:
        try:
            return failed(case, error)
        except GpuLost as lost:
            raise refuse(str(lost)) from error


def candidates(work: Any, functions: Functions) -> Candidates:
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
    names = ("bias", "activation", "residual", "scale_a", "scale_b")
    options = {name: getattr(work, name) for name in names}
    arguments = {name: value for name, value in options.items() if value is not None}
    function(work.operands.a[index], work.operands.b[index], **arguments)
