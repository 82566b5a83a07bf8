"""What tcgemm.tune is asked for: shapes, or a model's linear layers, as cases of the benchmarks."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

import tcgemm
from tcgemm import dtypes
from tcgemm.measure import subbyte
from tcgemm.measure.case import FLOAT8, FLOATS, Case
from tcgemm.measure.compare import request
from tcgemm.ops import precision as torch_precision

ROWS = (1, 16, 64, 256, 2048)  # of a layer's input
OF_F32 = (
    'float32 with precision "highest" is not tuned: the data decides which of its kernels runs; '
    "tune tf32 or a dtype of 16 bits"
)
COMPARE, TUNE = "tcgemm.compare: ", "tcgemm.tune: "


def refuse(text: str) -> RuntimeError:
    """The error for a call that tcgemm.tune refuses."""
    return RuntimeError(TUNE + text)


def of_shapes(
    shapes: Any,
    *,
    dtypes: Any,
    layouts: Any,
    scales: Any,
    precision: Any,
    sparse: bool,
    weight: Any = None,
    group_size: Any = "default",
) -> list[Case]:
    """The cases of shapes, which tcgemm.compare takes as well."""
    try:
        names = [request.dtype_name(dtype) for dtype in request.as_list(dtypes, single=_SINGLE)]
        cases = request.cases_of(
            request.shapes_of(shapes),
            names,
            request.layouts_of(layouts),
            epilogue=[],
            scales=scales,
            precision=precision,
            sparse=sparse,
            weight=weight,
            group_size=group_size,
        )
    except RuntimeError as error:
        raise RuntimeError(str(error).replace(COMPARE, TUNE)) from None
    if "f32" in names:
        raise refuse(f"dtypes has f32, but {OF_F32}.")
    for name in names:
        if name in subbyte.NAMES:
            raise refuse(
                f"dtypes has {name}, but products of int4 and of bits are not tuned; leave it out."
            )
    return list(dict.fromkeys(cases))


_SINGLE = (str, torch.dtype)


def rows_of(rows: Any) -> list[int]:
    """The numbers of rows, checked."""
    values = list(rows) if isinstance(rows, list | tuple | range) else [rows]
    for value in values:
        try:
            size = 0 if isinstance(value, bool) else operator.index(value)
        except TypeError:
            size = 0
        if size < 1:
            raise refuse(
                f"rows has {value!r}, but a layer's input has at least 1 row; pass rows such as "
                f"{list(ROWS)}."
            )
    if not values:
        raise refuse(f"rows is empty; pass rows such as {list(ROWS)}.")
    return [operator.index(value) for value in values]


def of_model(model: torch.nn.Module, rows: Iterable[int]) -> tuple[list[Case], dict[str, str]]:
    """(the cases of the linear layers, {name of a layer: why it has none})."""
    skipped: dict[str, str] = {}
    layers: dict[Case, None] = {}
    for name, module in model.named_modules():
        try:
            layer = of_layer(module)
        except NotTuned as why:
            skipped[name] = str(why)
            continue
        if layer is not None:
            layers[layer] = None
    if not layers and not skipped:
        raise refuse(
            f"{type(model).__name__} has no linear layer; pass a model with torch.nn.Linear or a "
            "layer of tcgemm.nn, or shapes such as (16, 4096, 4096)."
        )
    rows = list(rows)
    cases = [
        Case(case.op, case.dtype, case.layout, m, *_rest(case)) for case in layers for m in rows
    ]
    return cases, skipped


def _rest(case: Case) -> tuple[int, int, int, str, str]:
    return case.n, case.k, case.batch, case.accumulation, case.epilogue


class NotTuned(Exception):
    """A linear layer whose product is not tuned; the text says why."""


def of_layer(module: torch.nn.Module) -> Case | None:
    """The product of a linear layer for one row; None for other modules."""
    layers = tcgemm.nn
    weight: Any
    if isinstance(module, layers.QuantLinear):
        return _of_8_bits(module, str(module.granularity))
    if isinstance(module, layers.Float8Linear):
        size = (1, module.out_features, module.in_features, 1)
        return Case("mm", "e4m3", "TN", *size, module.precision or "promoted", "tensor-scales")
    if isinstance(module, layers.SparseLinear24):
        weight = module.weight
        name = "tf32" if weight.dtype is torch.float32 else _name(weight.dtype)
        size = (1, module.out_features, module.in_features)
        return Case("mm", name, "TN", *size, epilogue="sparse")
    if isinstance(module, layers.PackedLinear):
        return _of_packed(module)
    if isinstance(module, torch.nn.Linear):
        return Case("mm", _input(module.weight), "TN", 1, module.out_features, module.in_features)
    if hasattr(module, "nf") and isinstance(getattr(module, "weight", None), torch.Tensor):
        weight = module.weight  # (K, N), of transformers' Conv1D and of tcgemm's
        return Case("mm", _input(weight), "NN", 1, weight.shape[1], weight.shape[0])
    return None


def _of_8_bits(module: Any, granularity: str) -> Case:
    name = _name(module.dtype)
    size = (1, module.out_features, module.in_features, 1)
    if name not in FLOAT8:
        return Case("mm", name, "TN", *size)
    return Case("mm", name, "TN", *size, "promoted", f"{granularity}-scales")


def _of_packed(module: Any) -> Case:
    if module.format == "table":
        raise NotTuned("its weight has a table of its own")
    name = _name(module.weight.dtype)
    if name not in FLOATS:
        raise NotTuned(f"its weight is {name} for other modules, but bf16 or f16 multiplies it")
    size = (1, module.out_features, module.in_features)
    term = f"packed-{module.format}-{module.group_size or 'row'}"
    return Case("mm", name, "TN", *size, epilogue=term)


def _input(weight: Any) -> str:
    """The name of the dtype that a weight is multiplied in."""
    name = _name(weight.dtype)
    if name != "f32":
        return name
    if torch_precision.default() == "high":
        return "tf32"
    raise NotTuned(OF_F32)


def _name(dtype: torch.dtype) -> str:
    if dtype in dtypes.NAMES:
        return dtypes.NAMES[dtype]
    raise NotTuned(f"its weight is {dtype}, for which there is no product")
