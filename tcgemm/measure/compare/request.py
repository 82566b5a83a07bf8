"""The cases that a call of tcgemm.compare asks for, and the sentences where it asks for none."""

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch

from tcgemm.dtypes import named
from tcgemm.measure import cases, operands, subbyte
from tcgemm.measure.case import FLOAT8, Case
from tcgemm.measure.compare import weights
from tcgemm.measure.compare.weights import refuse
from tcgemm.typing import (
    Activation,
    Float8Precision,
    Granularity,
    Layout,
    MeasuredDType,
    PackedFormat,
    TorchBaseline,
    TorchDTypeName,
    words,
)

BASELINES: tuple[TorchBaseline, ...] = words(TorchBaseline)
SCALES: dict[Granularity, str] = {name: f"{name}-scales" for name in words(Granularity)}
# The float64 reference of the error has no epilogue for these.
NO_EPILOGUE: tuple[str, ...] = ("s8", "u8", "f64", *subbyte.NAMES)

# dtypes have the names of torch as well, such as "bfloat16".
DType = MeasuredDType | TorchDTypeName | torch.dtype
Shape = str | Sequence[int]
Baseline = TorchBaseline | Callable[..., Any]


def as_list(value: Any, *, single: tuple[type, ...]) -> list[Any]:
    """The values of an argument that is one value or several."""
    if isinstance(value, single) or callable(value) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def size_of(value: Any) -> int:
    """A size as an int; 0 if it is none."""
    try:
        return 0 if isinstance(value, bool) else max(0, operator.index(value))
    except TypeError:
        return int(value) if isinstance(value, str) and value.strip().isdecimal() else 0


def shape_of(shape: Any) -> tuple[int, int, int, int]:
    """(batch, m, n, k) of one shape."""
    parts = shape.lower().split("x") if isinstance(shape, str) else shape
    sizes = [size_of(part) for part in parts] if isinstance(parts, Iterable) else []
    if len(sizes) not in (3, 4) or 0 in sizes:
        raise refuse(
            f"a shape is (m, n, k) or (batch, m, n, k) with sizes of at least 1, or a text such as "
            f"'4096x4096x4096', but got {shape!r}; pass a list of shapes, or a torch.nn.Module and "
            "an example input."
        )
    batch, m, n, k = (1, *sizes)[-4:]
    return batch, m, n, k


def shapes_of(shapes: Any) -> list[tuple[int, int, int, int]]:
    """Every shape of the argument, which may be a single one."""
    if isinstance(shapes, torch.Tensor) or not isinstance(shapes, Iterable):
        return [shape_of(None if isinstance(shapes, torch.Tensor) else shapes)]
    items = [shapes] if isinstance(shapes, str) else list(shapes)
    if items and not any(isinstance(item, str | Iterable) for item in items):
        items = [shapes]
    if not items:
        raise refuse("there is no shape in the list; pass a shape such as (4096, 4096, 4096).")
    return [shape_of(item) for item in items]


def dtype_name(value: Any) -> str:
    """The name in operands.DTYPES of a torch.dtype, of its name in torch, or of our name."""
    if isinstance(value, str) and value in (*operands.DTYPES, *subbyte.NAMES):
        return value
    dtype = named(value)
    for name, candidate in operands.DTYPES.items():
        if dtype is candidate and name != "tf32":
            return name
    raise refuse(
        f"dtypes has {value!r}, but there are {', '.join(operands.DTYPES)} (tf32: float32 operands "
        f"rounded to tf32), {', '.join(subbyte.NAMES)}, and torch's dtypes of the others; take one "
        "of them."
    )


def layouts_of(layouts: Any) -> list[Layout]:
    """The layouts of the argument, checked."""
    names = as_list(layouts, single=(str,))
    for layout in names:
        if layout not in operands.LAYOUTS:
            raise refuse(
                f"layouts has {layout!r}, but there are {', '.join(operands.LAYOUTS)}: the letters "
                "of b and of a, T for a transposed view of a row-major matrix; take one of them."
            )
    return names


def baselines_of(baselines: Any) -> dict[str, Callable[..., Any] | None]:
    """{name: None for a baseline of torch, or the caller's function}."""
    functions: dict[str, Callable[..., Any] | None] = {}
    for item in as_list(baselines, single=(str,)):
        if callable(item):
            name = getattr(item, "__name__", type(item).__name__)
            if name in (*functions, *BASELINES, "tcgemm"):
                raise refuse(f"against has two baselines of the name {name!r}; rename one.")
            functions[name] = item
        elif item in BASELINES:
            functions[item] = None
        else:
            raise refuse(
                f"against has {item!r}, but there are {' and '.join(map(repr, BASELINES))}, and "
                "functions of (a, b); take some of them, or () for tcgemm alone."
            )
    return functions


def seconds_of(seconds: Any, device: torch.device) -> float:
    """The time of each candidate: 0.3 s fill three slices of a stable clock on a GPU."""
    if seconds is None:
        return 0.3 if device.type == "cuda" else 0.1
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise refuse(f"seconds is {seconds!r}, but is the time of a candidate; pass such as 0.3.")
    return float(seconds)


def device_of(value: Any) -> torch.device:
    """The device of the argument; by default the GPU if there is one."""
    if value is None:
        value = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError):
        raise refuse(f"device is {value!r}, but there are 'cuda' and 'cpu'; pass one.") from None
    if device.type not in ("cuda", "cpu"):
        raise refuse(f"device is {value!r}, but there are 'cuda' and 'cpu'; pass one of these.")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise refuse("device is 'cuda', but torch finds no CUDA GPU; pass device='cpu'.")
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        elif device.index >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise refuse(f"device is {str(device)!r}, but there are {count} GPUs; pass another.")
    return device


def epilogue_of(bias: bool, activation: str | None, residual: bool) -> list[str]:
    """The terms of the epilogue by name."""
    activations = (None, *words(Activation))
    if activation not in activations:
        names = ", ".join(map(repr, activations))
        raise refuse(f"activation is {activation!r}, but there are {names}; take one of them.")
    for name, value in (("bias", bias), ("residual", residual)):
        if not isinstance(value, bool):
            kind = type(value).__name__
            raise refuse(f"{name} is a {kind}, but says whether there is one; pass True or False.")
    terms = (bias and "bias", activation, residual and "residual")
    return [term for term in terms if term]


def cases_of(
    shapes: list[tuple[int, int, int, int]],
    dtypes: list[str],
    layouts: list[Layout],
    *,
    epilogue: list[str],
    scales: Granularity | None,
    precision: Float8Precision | None,
    sparse: bool,
    weight: PackedFormat | None = None,
    group_size: int | Literal["default"] | None = "default",
) -> list[Case]:
    """Every combination of shapes, dtypes and layouts, with what the other arguments ask for."""
    _check_float8("scales", scales, SCALES, dtypes)
    _check_float8("precision", precision, words(Float8Precision), dtypes)
    if epilogue and any(batch > 1 for batch, *_ in shapes):
        raise refuse(
            "bias, activation and residual belong to a linear layer, which has no batch, but a "
            "shape has one; pass (batch * m, n, k)."
        )
    for dtype in dtypes:
        if epilogue and dtype in NO_EPILOGUE:
            raise refuse(
                f"bias, activation and residual are measured in floating-point dtypes up to 32 "
                f"bits, but dtypes has {dtype}; leave it out."
            )
    for dtype in dtypes:
        if dtype in subbyte.NAMES and set(layouts) != {"TN"}:
            raise refuse(
                f"{dtype} shares bytes along K, so it has the layout TN, but layouts has "
                f"{', '.join(layouts)}; pass layouts='TN'."
            )
    if sparse:
        _check_sparse(shapes, dtypes, layouts, epilogue or scales, precision)
    term = weights.term_of(
        weight,
        group_size,
        shapes=shapes,
        dtypes=dtypes,
        layouts=layouts,
        arguments={"scales": scales, "precision": precision, "sparse": sparse},
    )
    result = []
    for dtype, layout, (batch, m, n, k) in itertools.product(dtypes, layouts, shapes):
        float8 = dtype in FLOAT8
        terms = [SCALES[scales]] if scales and float8 else []
        terms += ["sparse"] if sparse else [*filter(None, [term]), *epilogue]
        result.append(
            Case(
                "linear" if epilogue else "bmm" if batch > 1 else "mm",
                dtype,
                layout,
                m,
                n,
                k,
                batch,
                accumulation=("fast" if sparse else precision or "") if float8 else "",
                epilogue="+".join(terms) or "none",
            )
        )
    return result


def _check_float8(name: str, value: str | None, names: Iterable[str], dtypes: list[str]) -> None:
    if value is None:
        return
    if value not in names:
        raise refuse(
            f"{name} is {value!r}, but float8 operands have {', '.join(names)}; take one of them"
            + ("; float32 has the dtypes f32 and tf32." if name == "precision" else ".")
        )
    if not set(dtypes) & set(FLOAT8):
        raise refuse(
            f"{name} is {value!r}, but is for float8 operands, and dtypes has {', '.join(dtypes)}; "
            f"add e4m3 or e5m2, or leave {name} out."
        )


def _check_sparse(
    shapes: list[tuple[int, int, int, int]],
    dtypes: list[str],
    layouts: list[Layout],
    epilogue: list[str] | str | None,
    precision: str | None,
) -> None:
    for dtype in dtypes:
        if dtype not in cases.SPARSE:
            raise refuse(
                f"sparse=True has {', '.join(cases.SPARSE)}, but dtypes has {dtype}; leave it out."
            )
    if set(layouts) != {"TN"}:
        raise refuse(
            f"sparse=True has the layout TN, b being the transpose of a 2:4 weight, but layouts "
            f"has {', '.join(layouts)}; pass layouts='TN'."
        )
    if epilogue or precision == "promoted" or any(batch > 1 for batch, *_ in shapes):
        raise refuse(
            "sparse=True is measured for (m, n, k) without bias, activation, residual and scales, "
            "and with the precision 'fast' of float8; leave the others out."
        )
