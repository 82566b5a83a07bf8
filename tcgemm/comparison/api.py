"""The function tcgemm.compare, and which of its arguments belong to which of its two uses."""

from collections.abc import Callable, Sequence
from typing import Any, overload

import torch

from tcgemm.comparison.models import compare_model
from tcgemm.comparison.request import BASELINES, Baseline, DType, Shape, refuse
from tcgemm.comparison.result import Comparison
from tcgemm.comparison.shapes import compare_shapes
from tcgemm.nn import Linear
from tcgemm.nn.selection import Selection
from tcgemm.override import is_active

# Arguments of compare(shapes), with their defaults.
OF_SHAPES: dict[str, Any] = {
    "dtypes": "bf16",
    "layouts": "TN",
    "bias": False,
    "activation": None,
    "residual": False,
    "scales": None,
    "precision": None,
    "sparse": False,
    "device": None,
}


@overload
def compare(
    shapes: Shape | Sequence[Shape],
    /,
    *,
    dtypes: DType | Sequence[DType] = "bf16",
    layouts: str | Sequence[str] = "TN",
    against: Baseline | Sequence[Baseline] = BASELINES,
    bias: bool = False,
    activation: str | None = None,
    residual: bool = False,
    scales: str | None = None,
    precision: str | None = None,
    sparse: bool = False,
    seconds: float | None = None,
    device: torch.device | str | None = None,
    progress: bool | Callable[[str], None] = True,
) -> Comparison: ...


@overload
def compare(
    model: torch.nn.Module,
    example_input: Any,
    /,
    *,
    to: type[torch.nn.Module] = Linear,
    filter_fn: Selection | None = None,
    skip: Selection | None = None,
    shared: bool = False,
    against: Baseline | Sequence[Baseline] = "torch",
    seconds: float | None = None,
    progress: bool | Callable[[str], None] = True,
    **options: Any,
) -> Comparison: ...


def compare(
    shapes_or_model,
    example_input=None,
    /,
    *,
    against=None,
    seconds=None,
    progress=True,
    to=None,
    **options,
):
    """Measures tcgemm beside torch: products of these shapes, or every linear layer of a model.

    compare(shapes) has a row for each shape, dtype and layout. compare(model, example_input) has a
    row for each distinct linear layer that a forward of the model calls, with the number of its
    calls, and the forward's time before and after tcgemm.swap_linear; the model is measured in eval
    mode without gradients, and is as before afterwards.

    Operands are random normal data, in so many copies that no call finds its own in the cache. On a
    GPU the time is that of the kernels, from CUDA graphs; on the CPU it is wall-clock time. tcgemm
    and the baselines alternate in slices; the row has medians and interquartile ranges. The error
    is measured against float64, relative to a bound that rounding explains.

    Arguments of both:
        against: baselines: "torch" (the calls that a user of torch writes), "torch.compile" (the
            same compiled), and functions of (a, b) with the keywords bias, activation, residual,
            scale_a and scale_b where the case has them. Default: both for shapes, "torch" for a
            model. A baseline that cannot run a case has the reason in the table.
        seconds (float): the time of each candidate in a row. Default: 0.3, on the CPU 0.1.
        progress: True prints a line for each row on stderr; False is silent; a function takes the
            lines.

    Arguments of compare(shapes):
        shapes: (m, n, k), (batch, m, n, k), texts such as "4096x4096x4096", or a list of these.
        dtypes: "bf16", "f16", "f32" (all bits), "tf32", "f64", "e4m3", "e5m2", "s8", "u8", or
            torch's dtypes and their names. Default: "bf16".
        layouts: "TN", "NN", "TT", "NT": the letter of b, then that of a; T is a transposed view of
            a row-major matrix. Default: "TN", the layout of a linear layer.
        bias, residual (bool), activation (str): the epilogue of tcgemm.linear.
        scales (str): of float8 operands: "tensor", "row", "1x128" or "128x128".
        precision (str): of float8 operands: "promoted" or "fast".
        sparse (bool): b is 2:4 sparse; "torch" is then cuSPARSELt, and "torch dense" stands beside.
        device: default: the current GPU, or the CPU if there is none.

    Arguments of compare(model, example_input):
        example_input: a tensor, a tuple of positional or a dictionary of keyword arguments.
        to, filter_fn, skip, shared, **options: those of tcgemm.swap_linear.

    Returns a tcgemm.comparison.Comparison, which prints as a table and shows as one in a notebook;
    it has rows, facts, to_pandas(), plot() and save(path).

    Raises RuntimeError if an argument is none of these. A case that fails has its
    reason in the row.

    Example:
        >>> shapes = [(64, 64, 64), (8, 32, 32, 32)]
        >>> result = tcgemm.compare(shapes, dtypes="f32", against="torch", progress=False)
        >>> [row["function"] for row in result.rows]
        ['mm', 'bmm']
        >>> print(result)  # doctest: +SKIP
    """
    if is_active():
        raise refuse(
            "tcgemm.use is active, so that torch's own products would be tcgemm's; end it first."
        )
    common = {"seconds": seconds, "progress": progress}
    if isinstance(shapes_or_model, torch.nn.Module):
        if example_input is None:
            raise refuse("a model needs an example input; pass compare(model, example_input).")
        if given := sorted(OF_SHAPES.keys() & options.keys()):
            raise refuse(f"{given[0]} belongs to compare(shapes), but got a model; leave it out.")
        return compare_model(
            *(shapes_or_model, example_input),
            to=Linear if to is None else to,
            options=options,
            against="torch" if against is None else against,
            **common,
        )
    if isinstance(example_input, torch.nn.Module) or example_input is not None:
        raise refuse(
            f"the second argument is the example input of a model, but the first is a "
            f"{type(shapes_or_model).__name__}; pass compare(model, example_input)."
        )
    if unknown := sorted(options.keys() - OF_SHAPES.keys()):
        known = ", ".join([*OF_SHAPES, "against", "seconds", "progress"])
        raise refuse(f"there is no argument {unknown[0]}; there are {known}.")
    if to is not None:
        raise refuse("to belongs to compare(model, example_input); leave it out.")
    against = BASELINES if against is None else against
    return compare_shapes(shapes_or_model, against=against, **OF_SHAPES | options, **common)


compare.__module__ = "tcgemm"
