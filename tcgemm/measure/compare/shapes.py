"""tcgemm.compare of shapes: one row for each shape, dtype and layout."""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from tcgemm.measure import machine, results
from tcgemm.measure.amx import avoid_forbidden_amx
from tcgemm.measure.compare import measure, request
from tcgemm.measure.compare.result import Comparison, Row, size
from tcgemm.measure.work import METHOD, case_fields
from tcgemm.measure.works import work_of
from tcgemm.typing import Activation, Float8Precision, Granularity, PackedFormat

Job = tuple[Callable[[], Any], Row]


def show(line: str) -> None:
    """Prints a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def progress_of(progress: Any) -> Callable[[str], None]:
    """The function that takes the lines of progress."""
    if progress is True:
        return show
    if progress is False:
        return lambda line: None
    taker: Any = progress
    if not callable(progress):
        raise request.refuse(
            f"progress is {progress!r}, but is True (lines on stderr), False, or a function that "
            "takes each line; pass one of these."
        )
    return taker


def run(
    jobs: Iterable[Job],
    functions: measure.Functions,
    *,
    device: torch.device,
    seconds: float,
    progress: Callable[[str], None],
) -> list[Row]:
    """The rows of the jobs: (what builds the operands, the fields of the row)."""
    jobs, rows = list(jobs), []
    if device.type == "cpu" and (sentence := avoid_forbidden_amx()):
        progress(sentence)
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for number, (build, case) in enumerate(jobs, 1):
            row = measure.row_of(build, case, functions=functions, seconds=seconds)
            rows.append(row)
            name = f"{row['function']} {row['dtype']} {row['layout']} {size(row)}"
            progress(f"{number} of {len(jobs)}: {results.line(name, row)}")
    return rows


def compare_shapes(
    shapes: Any,
    *,
    dtypes: Any,
    layouts: Any,
    against: Any,
    bias: bool,
    activation: Activation | None,
    residual: bool,
    scales: Granularity | None,
    precision: Float8Precision | None,
    sparse: bool,
    weight: PackedFormat | None,
    group_size: int | Literal["default"] | None,
    seconds: float | None,
    device: Any,
    progress: Any,
) -> Comparison:
    """tcgemm.compare with shapes. Everything is checked before anything is measured."""
    cases = request.cases_of(
        request.shapes_of(shapes),
        [request.dtype_name(item) for item in request.as_list(dtypes, single=(str, torch.dtype))],
        request.layouts_of(layouts),
        epilogue=request.epilogue_of(bias, activation, residual),
        scales=scales,
        precision=precision,
        sparse=sparse,
        weight=weight,
        group_size=group_size,
    )
    functions = request.baselines_of(against)
    device, progress = request.device_of(device), progress_of(progress)
    seconds = request.seconds_of(seconds, device)
    jobs = [(functools.partial(work_of, case, device), case_fields(case, device)) for case in cases]
    with machine.current(device):
        rows = run(jobs, functions, device=device, seconds=seconds, progress=progress)
        return Comparison(rows, machine.facts(device) | {"method": METHOD})
