"""What tcgemm.tune is asked for: shapes, or a model's linear layers, as cases of the benchmarks."""

from __future__ import annotations

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
    if name != "f32":
        return name
    if torch_precision.default() == "high":
        return "tf32"
    raise NotTuned(OF_F32)


def _name(dtype: torch.dtype) -> str:
    if dtype in dtypes.NAMES:
        return dtypes.NAMES[dtype]
    raise NotTuned(f"its weight is {dtype}, for which there is no product")
