"""The function tcgemm.tune, and what it is asked for: shapes, or a model's linear layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

import tcgemm
from tcgemm import dtypes as names_of_dtypes
from tcgemm.measure import baseline, machine
from tcgemm.measure.case import FLOAT8, FLOATS, SUBBYTE, Case
from tcgemm.measure.command_line import Interrupted
from tcgemm.measure.compare.request import DType, Reader, Shape, size_of
from tcgemm.measure.tune import measure
from tcgemm.measure.tune.result import EMPTY, STORED, Row, Tuning, line
from tcgemm.measure.works import work_of
from tcgemm.ops import precision as torch_precision
from tcgemm.ops import query, tuned
from tcgemm.typing import Float8Precision, Granularity, Layout, PackedFormat

TUNE = Reader("tcgemm.tune")
ROWS = (1, 16, 64, 256, 2048)  # of a layer's input
OF_F32 = (
    'float32 with precision "highest" is not tuned: the data decides which of its kernels runs; '
    "tune tf32 or a dtype of 16 bits"
)


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
    is timed. The fastest one is kept if it gains more than 2 %. A product takes some 5 seconds.

    This process and later ones take the choices. They are kept in a JSON file, for this GPU model,
    this driver and this build of tcgemm, in the folder that TCGEMM_CACHE_DIR names, by default
    tcgemm in the user's folder of caches. A choice holds for every epilogue, result dtype and `out`
    of the product. tcgemm.batch_invariant ignores it.

    Arguments:
        what: shapes, as for tcgemm.compare: (m, n, k), (batch, m, n, k), "4096x4096x4096", or a
            list of these. Or a torch.nn.Module: the products of its linear layers, from torch
            or tcgemm.nn. Its weights are not read, and need not be on the GPU.
        rows (int or list): the rows of a layer's input; for a model. Default: 1, 16, 64, 256, 2048.
        dtypes, layouts, scales, precision, sparse, weight, group_size: as for tcgemm.compare; for
            shapes. float32 with all its bits, int4 and bits are not tuned.
        seconds (float): the time of the planned kernel and of each of the three fastest: 0.3.
        device: the GPU. Default: the current one.
        progress: True prints a line for each product on stderr; a function is called with it.

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
        cases, skipped = of_model(what, ROWS if rows is None else rows)
    else:
        if rows is not None:
            raise TUNE.refuse(
                "rows belongs to a model, but got shapes, which have m; leave it out."
            )
        cases = of_shapes(what, group_size=group_size, **choices)
    gpu = gpu_of(device)
    if query.ask("_batch_invariant", 0):
        raise TUNE.refuse("batch_invariant is active, which ignores what is tuned; end it first.")
    lines, seconds = TUNE.progress(progress), TUNE.seconds(seconds, gpu)
    with machine.current(gpu), torch.no_grad(), torch.autocast("cuda", enabled=False):
        found = Tuning([], tuned.path_of(machine.gpu_name(gpu)), machine.facts(gpu), skipped)
        try:
            run(cases, gpu, seconds, lines, found.rows)
        except KeyboardInterrupt as error:
            raise Interrupted(found) from error
        return found


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
    cases: list[Case],
    gpu: torch.device,
    seconds: float,
    progress: Callable[[str], None],
    rows: list[Row],
) -> None:
    """Adds the rows of the cases. Each choice is stored as soon as it is measured."""
    name, known = machine.gpu_name(gpu), machine.known_gpu(gpu)
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


def of_shapes(shapes: Any, **choices: Any) -> list[Case]:
    """The cases of shapes; choices are the keyword arguments of Reader.cases."""
    cases = list(dict.fromkeys(TUNE.cases(shapes, **choices)))
    for name in (case.dtype for case in cases):
        if name == "f32":
            raise TUNE.refuse(f"dtypes has f32, but {OF_F32}.")
        if name in SUBBYTE:
            raise TUNE.refuse(
                f"dtypes has {name}, but products of int4 and of bits are not tuned; leave it out."
            )
    return cases


def of_model(model: torch.nn.Module, rows: Any) -> tuple[list[Case], dict[str, str]]:
    """(the cases of the linear layers, {name of a layer: why it has none})."""
    values = list(rows) if isinstance(rows, list | tuple | range) else [rows]
    such_as = f"pass rows such as {list(ROWS)}."
    if not values:
        raise TUNE.refuse(f"rows is empty; {such_as}")
    for value in values:
        if isinstance(value, str) or not size_of(value):
            raise TUNE.refuse(
                f"rows has {value!r}, but a layer's input has at least 1 row; {such_as}"
            )
    layers: dict[Case | None, None] = {}
    skipped: dict[str, str] = {}
    for name, module in model.named_modules():
        try:
            layers[of_layer(module)] = None
        except NotTuned as why:
            skipped[name] = str(why)
    cases = [replace(layer, m=size_of(m)) for layer in layers if layer for m in values]
    if not cases and not skipped:
        raise TUNE.refuse(
            f"{type(model).__name__} has no linear layer; pass a model with torch.nn.Linear or a "
            "layer of tcgemm.nn, or shapes such as (16, 4096, 4096)."
        )
    return cases, skipped


class NotTuned(Exception):
    """A linear layer whose product is not tuned; the text says why."""


def of_layer(module: torch.nn.Module) -> Case | None:
    """The product of a linear layer for one row; None for other modules."""
    layers = tcgemm.nn
    weight: Any = getattr(module, "weight", None)
    accumulation, epilogue = "", "none"
    if isinstance(module, layers.QuantLinear):
        name = _name(module.dtype)
        if name in FLOAT8:
            epilogue = f"{module.granularity}-scales"
    elif isinstance(module, layers.Float8Linear):
        name, accumulation, epilogue = "e4m3", module.precision or "promoted", "tensor-scales"
    elif isinstance(module, layers.SparseLinear24):
        name = "tf32" if weight.dtype is torch.float32 else _name(weight.dtype)
        epilogue = "sparse"
    elif isinstance(module, layers.PackedLinear):
        if module.format == "table":
            raise NotTuned("its weight has a table of its own")
        name = _name(weight.dtype)
        if name not in FLOATS:
            raise NotTuned(f"its weight is {name} for other modules, but bf16 or f16 multiplies it")
        epilogue = f"packed-{module.format}-{module.group_size or 'row'}"
    elif isinstance(module, torch.nn.Linear):
        name = _input(weight)
    elif hasattr(module, "nf") and isinstance(weight, torch.Tensor):
        k, n = weight.shape  # of transformers' Conv1D and of tcgemm's
        return Case("mm", _input(weight), "NN", 1, n, k)
    else:
        return None
    size: Any = (1, module.out_features, module.in_features)
    return Case("mm", name, "TN", *size, accumulation=accumulation, epilogue=epilogue)


def _input(weight: torch.Tensor) -> str:
    """The name of the dtype that a weight is multiplied in."""
    name = _name(weight.dtype)
    if name == "f32" and torch_precision.default() != "high":
        raise NotTuned(OF_F32)
    return "tf32" if name == "f32" else name


def _name(dtype: torch.dtype) -> str:
    if dtype in names_of_dtypes.NAMES:
        return names_of_dtypes.NAMES[dtype]
    raise NotTuned(f"its weight is {dtype}, for which there is no product")
