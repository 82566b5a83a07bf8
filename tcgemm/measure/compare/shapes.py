"""tcgemm.compare of shapes: one row for each shape, dtype and layout."""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from tcgemm.measure import machine, telemetry
from tcgemm.measure.amx import avoid_forbidden_amx
from tcgemm.measure.case import Case
from tcgemm.measure.compare import measure, request, subbyte
from tcgemm.measure.compare.result import Comparison, Row, size
from tcgemm.measure.packed_weight import workload
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


def line(row: Row) -> str:
    """One row as a line of progress."""
    text = f"{row['function']} {row['dtype']} {row['layout']} {size(row)}"
    if row["us"] is None:
        return f"{text}: {row['why']}"
    ratios = [f"{ratio:.3f} x {name}" for name, ratio in row["ratios"].items()]
    rate = f"{row['tflops']:.4g} TFLOP/s"
    return f"{text}: " + ", ".join([f"{row['us']:.2f} us", rate, *ratios])


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
    reader_of = functools.cache(telemetry.open_reader)
    common = {"functions": functions, "seconds": seconds, "reader_of": reader_of}
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for number, (build, head) in enumerate(jobs, 1):
            rows.append(measure.row_of(build, head, **common))
            progress(f"{number} of {len(jobs)}: {line(rows[-1])}")
    return rows


def _work(case: Case, device: torch.device) -> measure.Work:
    if case.dtype in subbyte.NAMES:
        return subbyte.SubbyteWork(case, device)
    return workload(case, device)


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
    jobs = [(functools.partial(_work, case, device), measure.head(case)) for case in cases]
    with machine.current(device):
        rows = run(jobs, functions, device=device, seconds=seconds, progress=progress)
        return Comparison(rows, machine.facts(device) | {"method": measure.METHOD})
