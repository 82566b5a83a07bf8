"""The arguments of tcgemm.compare and tcgemm.tune, and the sentences where they ask for nothing."""

import functools
import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tcgemm.dtypes import named
from tcgemm.measure import cases, operands
from tcgemm.measure.case import FLOAT8, FLOATS, SUBBYTE, Case
from tcgemm.measure.command_line import default_device
from tcgemm.operands.packed.formats import FORMATS, check_group
from tcgemm.typing import (
    Activation,
    Float8Precision,
    Granularity,
    Layout,
    MeasuredDType,
    TorchBaseline,
    TorchDTypeName,
    words,
)

BASELINES: tuple[TorchBaseline, ...] = words(TorchBaseline)
WEIGHTS: tuple[str, ...] = tuple(name for name in FORMATS if name != "table")
# The float64 reference of the error has no epilogue for these.
NO_EPILOGUE: tuple[str, ...] = ("s8", "u8", "f64", *SUBBYTE)

# dtypes have the names of torch as well, such as "bfloat16".
DType = MeasuredDType | TorchDTypeName | torch.dtype
Shape = str | Sequence[int]
Baseline = TorchBaseline | Callable[..., Any]
Sizes = tuple[int, int, int, int]  # batch, m, n, k


def as_list(value: Any) -> list[Any]:
    """The values of an argument that is one value or several."""
    if isinstance(value, str) or callable(value) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def size_of(value: Any) -> int:
    """A size as an int; 0 if it is none."""
    try:
        return 0 if isinstance(value, bool) else max(0, operator.index(value))
    except TypeError:
        return int(value) if isinstance(value, str) and value.strip().isdecimal() else 0


@dataclass(frozen=True)
class Reader:
    """Reads the arguments of a function, whose name is in front of every sentence."""

    function: str

    def refuse(self, text: str) -> RuntimeError:
        """The error for a call that the function refuses."""
        return RuntimeError(f"{self.function}: {text}")

    def check(self, faults: Mapping[str, object]) -> None:
        """Raises the first sentence whose fault is true."""
        for sentence, fault in faults.items():
            if fault:
                raise self.refuse(sentence)

    def shapes(self, shapes: Any) -> list[Sizes]:
        """Every shape of the argument, which may be a single one."""
        shapes = None if isinstance(shapes, torch.Tensor) else shapes
        items = as_list(shapes)
        if items and not any(isinstance(item, Iterable) for item in items):
            items = [shapes]
        empty = "there is no shape in the list; pass a shape such as (4096, 4096, 4096)."
        self.check({empty: not items})
        return [self._shape(item) for item in items]

    def _shape(self, shape: Any) -> Sizes:
        parts = shape.lower().split("x") if isinstance(shape, str) else shape
        sizes = [size_of(part) for part in parts] if isinstance(parts, Iterable) else []
        if len(sizes) not in (3, 4) or 0 in sizes:
            raise self.refuse(
                f"a shape is (m, n, k) or (batch, m, n, k) with sizes of at least 1, or a text "
                f"such as '4096x4096x4096', but got {shape!r}; pass a list of shapes, or a "
                "torch.nn.Module and an example input."
            )
        batch, m, n, k = (1, *sizes)[-4:]
        return batch, m, n, k

    def dtype(self, value: Any) -> str:
        """The name in operands.DTYPES of a torch.dtype, of its name in torch, or of our name."""
        if isinstance(value, str) and value in (*operands.DTYPES, *SUBBYTE):
            return value
        dtype = named(value)
        for name, candidate in operands.DTYPES.items():
            if dtype is candidate and name != "tf32":
                return name
        raise self.refuse(
            f"dtypes has {value!r}, but there are {', '.join(operands.DTYPES)} (tf32: float32 "
            f"operands rounded to tf32), {', '.join(SUBBYTE)}, and torch's dtypes of the "
            "others; take one of them."
        )

    def layouts(self, layouts: Any) -> list[Layout]:
        """The layouts of the argument, checked."""
        names = as_list(layouts)
        for layout in names:
            if layout not in operands.LAYOUTS:
                raise self.refuse(
                    f"layouts has {layout!r}, but there are {', '.join(operands.LAYOUTS)}: the "
                    "letters of b and of a, T for a transposed view of a row-major matrix; take "
                    "one of them."
                )
        return names

    def baselines(self, baselines: Any) -> dict[str, Callable[..., Any] | None]:
        """{name: None for a baseline of torch, or the caller's function}."""
        functions: dict[str, Callable[..., Any] | None] = {}
        for item in as_list(baselines):
            if callable(item):
                name = getattr(item, "__name__", type(item).__name__)
                if name in (*functions, *BASELINES, "tcgemm"):
                    raise self.refuse(
                        f"against has two baselines of the name {name!r}; rename one."
                    )
                functions[name] = item
            elif item in BASELINES:
                functions[item] = None
            else:
                raise self.refuse(
                    f"against has {item!r}, but there are {' and '.join(map(repr, BASELINES))}, "
                    "and functions of (a, b); take some of them, or () for tcgemm alone."
                )
        return functions

    def seconds(self, seconds: Any, device: torch.device) -> float:
        """The time of each candidate: 0.3 s fill three slices of a stable clock on a GPU."""
        if seconds is None:
            return 0.3 if device.type == "cuda" else 0.1
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise self.refuse(
                f"seconds is {seconds!r}, but is the time of a candidate; pass such as 0.3."
            )
        return float(seconds)

    def progress(self, progress: Any) -> Callable[[str], None]:
        """The function that takes the lines of progress."""
        if progress is True:
            return functools.partial(print, file=sys.stderr, flush=True)
        if progress is False:
            return lambda line: None
        taker: Any = progress
        if not callable(progress):
            raise self.refuse(
                f"progress is {progress!r}, but is True (lines on stderr), False, or a function "
                "that takes each line; pass one of these."
            )
        return taker

    def device(self, value: Any) -> torch.device:
        """The device of the argument; by default the GPU if there is one."""
        value = default_device() if value is None else value
        try:
            device = torch.device(value)
        except (RuntimeError, TypeError):
            device = torch.device("meta")
        if device.type == "cpu":
            return device
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        is_other, is_missing = device.type != "cuda", (device.index or 0) >= count
        faults = {
            f"device is {value!r}, but there are 'cuda' and 'cpu'; pass one of these.": is_other,
            "device is 'cuda', but torch finds no CUDA GPU; pass device='cpu'.": not count,
            f"device is {str(device)!r}, but there are {count} GPUs; pass another.": is_missing,
        }
        self.check(faults)
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.device("cuda", index)

    def cases(
        self,
        shapes: Any,
        *,
        dtypes: Any = "bf16",
        layouts: Any = "TN",
        bias: Any = False,
        activation: Any = None,
        residual: Any = False,
        scales: Any = None,
        precision: Any = None,
        sparse: bool = False,
        weight: Any = None,
        group_size: Any = "default",
    ) -> list[Case]:
        """Every combination of shapes, dtypes and layouts, with what the others ask for."""
        sizes, layout_names = self.shapes(shapes), self.layouts(layouts)
        names = [self.dtype(item) for item in as_list(dtypes)]
        epilogue = self._epilogue(bias, activation, residual)
        self._check_float8("scales", scales, words(Granularity), names, ".")
        end = "; float32 has the dtypes f32 and tf32."
        self._check_float8("precision", precision, words(Float8Precision), names, end)
        batched = any(batch > 1 for batch, *_ in sizes)
        other_layout = set(layout_names) != {"TN"}
        but = f"but layouts has {', '.join(layout_names)}; pass layouts='TN'."
        without = next((name for name in names if name in NO_EPILOGUE), None)
        in_bytes = other_layout and next((name for name in names if name in SUBBYTE), None)
        dense = next((name for name in names if name not in cases.SPARSE), None)
        others = epilogue or scales or precision == "promoted" or batched
        packed, has = weight is not None, f"weight is {weight!r}"
        unknown = packed and weight not in WEIGHTS
        wide = packed and next((name for name in names if name not in FLOATS), None)
        excluded = {"scales": scales, "precision": precision, "sparse": sparse}
        other = packed and next((name for name, value in excluded.items() if value), None)
        faults = {
            "bias, activation and residual belong to a linear layer, which has no batch, but a "
            "shape has one; pass (batch * m, n, k).": epilogue and batched,
            "bias, activation and residual are measured in floating-point dtypes up to 32 bits, "
            f"but dtypes has {without}; leave it out.": epilogue and without,
            f"{in_bytes} shares bytes along K, so it has the layout TN, {but}": in_bytes,
            f"sparse=True has {', '.join(cases.SPARSE)}, but dtypes has {dense}; leave it "
            "out.": sparse and dense,
            f"sparse=True has the layout TN, b being the transpose of a 2:4 weight, {but}": sparse
            and other_layout,
            "sparse=True is measured for (m, n, k) without bias, activation, residual and scales, "
            "and with the precision 'fast' of float8; leave the others out.": sparse and others,
            f"group_size is {group_size!r}, but belongs to a packed weight; pass its format as "
            "weight, such as 'int4', or leave it out.": not packed and group_size != "default",
            f"{has}, but there are {', '.join(WEIGHTS)}; pass one of these.": unknown,
            f"{has}, which bf16 or f16 multiplies, but dtypes has {wide}; leave it out.": wide,
            f"{has}, which has the layout TN, {but}": packed and other_layout,
            f"{other} does not go with a packed weight; leave {other} or weight out.": other,
            "a packed weight is one matrix, but a shape has a batch; pass (batch * m, n, "
            "k).": packed and batched,
        }
        self.check(faults)
        terms = ["sparse"] if sparse else epilogue
        if packed:
            form = FORMATS[weight]
            group = form.default_group if group_size == "default" else group_size
            for *_, k in sizes:
                check_group(self.function, form, group, k)
            terms = [f"packed-{weight}-{group or 'row'}", *epilogue]
        result = []
        for dtype, layout, (batch, m, n, k) in itertools.product(names, layout_names, sizes):
            float8 = dtype in FLOAT8
            scale_terms = [f"{scales}-scales"] if scales and float8 else []
            result.append(
                Case(
                    "linear" if epilogue else "bmm" if batch > 1 else "mm",
                    dtype,
                    layout,
                    *(m, n, k, batch),
                    accumulation=("fast" if sparse else precision or "") if float8 else "",
                    epilogue="+".join([*scale_terms, *terms]) or "none",
                )
            )
        return result

    def _epilogue(self, bias: Any, activation: Any, residual: Any) -> list[str]:
        """The terms of the epilogue by name."""
        choices = (None, *words(Activation))
        faults = {
            f"activation is {activation!r}, but there are {', '.join(map(repr, choices))}; take "
            "one of them.": activation not in choices,
        }
        for name, value in (("bias", bias), ("residual", residual)):
            sentence = (
                f"{name} is a {type(value).__name__}, but says whether there is one; pass True or "
                "False."
            )
            faults[sentence] = not isinstance(value, bool)
        self.check(faults)
        return [term for term in (bias and "bias", activation, residual and "residual") if term]

    def _check_float8(
        self, name: str, value: Any, choices: Sequence[str], dtypes: list[str], end: str
    ) -> None:
        given = value is not None
        faults = {
            f"{name} is {value!r}, but float8 operands have {', '.join(choices)}; take one of "
            f"them{end}": given and value not in choices,
            f"{name} is {value!r}, but is for float8 operands, and dtypes has {', '.join(dtypes)}; "
            f"add e4m3 or e5m2, or leave {name} out.": given and not {*dtypes} & {*FLOAT8},
        }
        self.check(faults)


COMPARE = Reader("tcgemm.compare")
