"""What tcgemm.tune is asked for: shapes, or a model's linear layers, as cases of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

import tcgemm
from tcgemm import dtypes
from tcgemm.measure.case import FLOAT8, FLOATS, SUBBYTE, Case
from tcgemm.measure.compare.request import Reader, size_of
from tcgemm.ops import precision as torch_precision

TUNE = Reader("tcgemm.tune")
ROWS = (1, 16, 64, 256, 2048)  # of a layer's input
OF_F32 = (
    'float32 with precision "highest" is not tuned: the data decides which of its kernels runs; '
    "tune tf32 or a dtype of 16 bits"
)


def of_shapes(shapes: Any, **choices: Any) -> list[Case]:
    """The cases of shapes; choices are the keyword arguments of Reader.cases."""
    cases = list(dict.fromkeys(TUNE.cases(shapes, **choices)))
    names = [case.dtype for case in cases]
    in_bytes = next((name for name in names if name in SUBBYTE), None)
    TUNE.check(
        ("f32" in names, f"dtypes has f32, but {OF_F32}."),
        (
            in_bytes,
            f"dtypes has {in_bytes}, but products of int4 and of bits are not tuned; leave it out.",
        ),
    )
    return cases


def rows_of(rows: Any) -> list[int]:
    """The numbers of rows, checked."""
    values = list(rows) if isinstance(rows, list | tuple | range) else [rows]
    if not values:
        raise TUNE.refuse(f"rows is empty; pass rows such as {list(ROWS)}.")
    for value in values:
        if isinstance(value, str) or not size_of(value):
            raise TUNE.refuse(
                f"rows has {value!r}, but a layer's input has at least 1 row; pass rows such as "
                f"{list(ROWS)}."
            )
    return [size_of(value) for value in values]


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
        raise TUNE.refuse(
            f"{type(model).__name__} has no linear layer; pass a model with torch.nn.Linear or a "
            "layer of tcgemm.nn, or shapes such as (16, 4096, 4096)."
        )
    rows = list(rows)
    return [replace(layer, m=m) for layer in layers for m in rows], skipped


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
    if name != "f32":
        return name
    if torch_precision.default() == "high":
        return "tf32"
    raise NotTuned(OF_F32)


def _name(dtype: torch.dtype) -> str:
    if dtype in dtypes.NAMES:
        return dtypes.NAMES[dtype]
    raise NotTuned(f"its weight is {dtype}, for which there is no product")
