"""The function tcgemm.tune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from tcgemm.measure import baseline, machine
from tcgemm.measure.case import Case
from tcgemm.measure.compare.request import DType, Shape
from tcgemm.measure.tune import measure, products
from tcgemm.measure.tune.products import TUNE
from tcgemm.measure.tune.result import EMPTY, STORED, Row, Tuning, line
from tcgemm.measure.works import work_of
from tcgemm.ops import query, tuned
from tcgemm.typing import Float8Precision, Granularity, Layout, PackedFormat


def tune(
    what: torch.nn.Module | Shape | Sequence[Shape],
    *,
    rows: int | Sequence[int] | None = None,
    dtypes: DType | Sequence[DType] | None = None,
    layouts: Layout | Sequence[Layout] | None = None,
    scales: Granularity | None = None,
    precision: Float8Precision | None = None,
    sparse: bool = False,
    weight: PackedFormat | None = None,
    group_size: int | Literal["default"] | None = "default",
    seconds: float | None = None,
    device: torch.device | str | None = None,
    progress: bool | Callable[[str], None] = True,
) -> Tuning:
    """Measures which kernels are fastest on this GPU, and lets the planner take them from now on.

    Example:
        >>> found = tcgemm.tune([(16, 4096, 4096)], dtypes="bf16")  # doctest: +SKIP
        >>> print(found)  # doctest: +SKIP
        >>> tcgemm.tune(model, rows=[1, 16])  # doctest: +SKIP

    For each product the candidates are the kernels, clusters and slices of k whose estimated time
    is at most 1.5 times the best estimate. The result of each is checked against float64 before it
    is timed, as tcgemm.compare does both. The fastest one is kept if it gains more than 2 % on the
    planned kernel. A product takes some 5 seconds.

    The choices are kept in a JSON file, for this GPU model, this driver and this build of tcgemm.
    This process and later ones take them. The file is in the folder that TCGEMM_CACHE_DIR names, by
    default tcgemm in the user's folder of caches. A choice holds for every epilogue, result dtype
    and `out` of the product. tcgemm.batch_invariant ignores it.

    Arguments:
        what: shapes, as for tcgemm.compare: (m, n, k), (batch, m, n, k), "4096x4096x4096", or a
            list of these. Or a torch.nn.Module: the products of its linear layers, from torch
            or tcgemm.nn. Its weights are not read, and need not be on the GPU.
        rows (int or list): the rows of a layer's input; for a model. Default: 1, 16, 64, 256, 2048.
        dtypes, layouts, scales, precision, sparse, weight, group_size: as for tcgemm.compare; for
            shapes. float32 with all its bits, int4 and bits are not tuned.
        seconds (float): the time that the planned kernel and each of the three fastest run.
            Default: 0.3.
        device: the GPU. Default: the current one.
        progress: True prints a line on stderr for each product, False prints nothing. A function is
            called with each line.

    Returns:
        A tcgemm.measure.tune.Tuning, which prints as a table.

    Raises:
        RuntimeError: there is no GPU, an argument is none of these, or a batch_invariant is active.
            If a product cannot be measured, its row contains the reason instead.
    """
    choices: dict[str, Any] = {"dtypes": dtypes, "layouts": layouts, "scales": scales}
    choices |= {"precision": precision, "weight": weight, "sparse": sparse or None}
    choices = {name: value for name, value in choices.items() if value is not None}
    skipped: dict[str, str] = {}
    if isinstance(what, torch.nn.Module):
        for name in choices:
            raise TUNE.refuse(
                f"{name} belongs to shapes, but got a model, whose layers have it; leave it out."
            )
        cases, skipped = products.of_model(what, products.ROWS if rows is None else rows)
    else:
        if rows is not None:
            raise TUNE.refuse(
                "rows belongs to a model, but got shapes, which have m; leave it out."
            )
        cases = products.of_shapes(what, group_size=group_size, **choices)
    gpu = gpu_of(device)
    if query.ask("_batch_invariant", 0):
        raise TUNE.refuse("batch_invariant is active, which ignores what is tuned; end it first.")
    lines, seconds = TUNE.progress(progress), TUNE.seconds(seconds, gpu)
    with machine.current(gpu), torch.no_grad(), torch.autocast("cuda", enabled=False):
        rows_of_cases, path = run(cases, gpu, seconds, lines)
        return Tuning(rows_of_cases, path, machine.facts(gpu), skipped)


tune.__module__ = "tcgemm"


def gpu_of(device: Any) -> torch.device:
    """The GPU of the argument; by default the current one."""
    if not torch.cuda.is_available():
        raise TUNE.refuse(
            "torch finds no CUDA GPU, and kernels are timed on one; run it on a machine with a GPU."
        )
    try:
        gpu = torch.device("cuda" if device is None else device)
    except (RuntimeError, TypeError):
        gpu = torch.device("cpu")
    count = torch.cuda.device_count()
    if gpu.type != "cuda" or (gpu.index or 0) >= count:
        raise TUNE.refuse(
            f"device is {device!r}, but has to be one of this machine's GPUs, of which there are "
            f'{count}; pass "cuda" or "cuda:0".'
        )
    return torch.device("cuda", torch.cuda.current_device() if gpu.index is None else gpu.index)


def run(
    cases: list[Case], gpu: torch.device, seconds: float, progress: Callable[[str], None]
) -> tuple[list[Row], Path]:
    """(the rows of the cases, the file). Each choice is stored as soon as it is measured."""
    name, known = machine.gpu_name(gpu), machine.known_gpu(gpu)
    rows = []
    with tuned.planned_kernels(name):
        for number, case in enumerate(cases, 1):
            try:
                work: Any = work_of(case, gpu)  # a Workload: other cases are refused
                row = EMPTY | measure.measure(work, seconds)
            except RuntimeError as error:
                torch.cuda.synchronize()  # a GPU that no longer answers raises here
                torch.cuda.empty_cache()
                words = f"{case.dtype} {case.layout} {case.size} {case.epilogue}"
                row = EMPTY | {"product": words, "why": baseline.reason(error)}
            rows.append(row)
            if row["us"] is not None:
                choice = {field: row[field] for field in STORED} | {"date": machine.now()}
                stored = {row["product"]: choice if row["stored"] else None}
                tuned.store(name, known["name"] if known else name, stored)
            progress(f"{number} of {len(cases)}: {line(row)}")
    return rows, tuned.path_of(name)
