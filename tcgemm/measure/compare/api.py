"""The function tcgemm.compare, and which of its arguments belong to which of its two uses."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import torch

from tcgemm.measure import machine
from tcgemm.measure.compare.measure import measured
from tcgemm.measure.compare.models import compare_model
from tcgemm.measure.compare.request import BASELINES, COMPARE, Baseline, DType, Shape
from tcgemm.measure.compare.result import Comparison
from tcgemm.measure.work import METHOD, case_fields
from tcgemm.measure.works import work_of
from tcgemm.nn import Linear
from tcgemm.nn.exchange import EXCHANGES, name_of
from tcgemm.nn.selection import Selection
from tcgemm.override import is_active
from tcgemm.typing import Activation, Float8Precision, Granularity, Layout, PackedFormat

# The arguments of compare(shapes) alone.
OF_SHAPES = (
    *("dtypes", "layouts", "bias", "activation", "residual", "scales", "precision", "sparse"),
    *("weight", "group_size", "device"),
)


@overload
def compare(
    shapes: Shape | Sequence[Shape],
    /,
    *,
    dtypes: DType | Sequence[DType] = "bf16",
    layouts: Layout | Sequence[Layout] = "TN",
    against: Baseline | Sequence[Baseline] = BASELINES,
    bias: bool = False,
    activation: Activation | None = None,
    residual: bool = False,
    scales: Granularity | None = None,
    precision: Float8Precision | None = None,
    sparse: bool = False,
    weight: PackedFormat | None = None,
    group_size: int | Literal["default"] | None = "default",
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
    shapes_or_model: Any,
    example_input: Any = None,
    /,
    *,
    against: Any = None,
    seconds: float | None = None,
    progress: bool | Callable[[str], None] = True,
    to: type[torch.nn.Module] | None = None,
    **options: Any,
) -> Comparison:
    """Measures tcgemm beside torch: products of given shapes, or the linear layers of a model.

    Example:
        >>> shapes = [(64, 64, 64), (8, 32, 32, 32)]
        >>> result = tcgemm.compare(shapes, dtypes="f32", against="torch", progress=False)
        >>> [row["function"] for row in result.rows]
        ['mm', 'bmm']
        >>> print(result)  # doctest: +SKIP

    compare(shapes) makes a row for each shape, dtype and layout.

    compare(model, example_input) makes a row for each distinct linear layer that a forward of the
    model calls, with the number of its calls. It also measures the forward before and after
    tcgemm.swap_linear, in eval mode without gradients. Afterwards the model is as it was.

    Method: operands are normally distributed. There are so many copies of them that no call finds
    its operands in the cache. On a GPU only the kernels are timed, replayed from CUDA graphs;
    on the CPU it is wall-clock time. tcgemm and the baselines alternate in short slices, and a row
    has medians and interquartile ranges. Samples of the wall clock in which other processes had the
    CPU are dropped; a line says how many. The error of a result is its distance from a float64
    result, divided by the largest distance that rounding explains.

    Arguments of both:
        against: what tcgemm is measured against: "torch" (the functions that a user of torch
            calls), "torch.compile" (the same, compiled), and functions of your own. Such a function
            takes (a, b), and the keywords bias, activation, residual, scale_a and scale_b if the
            case has them. Default: both words for shapes, "torch" for a model. If a baseline cannot
            run a case, the table says why.
        seconds (float): the time that each candidate runs, for each row. Default: 0.3, and 0.1 on
            the CPU.
        progress: True prints a line on stderr for each row, False prints nothing. A function is
            called with each line.

    Arguments of compare(shapes):
        shapes: (m, n, k) or (batch, m, n, k), a text such as "4096x4096x4096", or a list of these.
        dtypes: "bf16", "f16", "f32" (all bits), "tf32", "f64", "e4m3", "e5m2", "s8", "u8", or a
            dtype of torch or its name; or a list of these. Default: "bf16". "s4" and "u4" are int4
            and "b1" is bits: torch multiplies the same integers in int8.
        layouts: "TN", "NN", "TT", "NT", or a list of these. The first letter is about b, the second
            about a. T means that the operand is the transpose of a row-major matrix. Default: "TN",
            the layout of a linear layer.
        bias, residual (bool): whether the layer has them, as in tcgemm.linear.
        activation (str): the activation of the layer, as in tcgemm.linear.
        scales (str): scales of float8 operands: "tensor", "row", "1x128" or "128x128".
        precision (str): the sums of float8 products: "promoted" or "fast".
        sparse (bool): b is 2:4 sparse. "torch" then means cuSPARSELt, and "torch dense" is measured
            as well.
        weight (str): b is a packed weight of this format, "int4" or another one of
            tcgemm.pack_weight but "table". torch multiplies the weight that was packed, in bf16 or
            f16.
        group_size (int): the elements along K that share a scale, as for tcgemm.pack_weight.
        device: where to measure. Default: the current GPU, or the CPU if there is none.

    Arguments of compare(model, example_input):
        example_input: a tensor, a tuple of positional arguments, or a dict of keyword arguments.
        to, filter_fn, skip, shared, **options: the arguments of tcgemm.swap_linear, such as
            to=tcgemm.nn.PackedLinear with format and group_size.

    Returns:
        A tcgemm.measure.compare.Comparison. It prints as a table, also in a notebook, and has rows,
        facts, to_pandas(), plot() and save(path).

    Raises:
        RuntimeError: an argument is none of these, or a tcgemm.use is active. If a case fails, its
            row contains the reason instead.
        KeyboardInterrupt: Ctrl-C. Once rows are measured, its attribute `result` is the Comparison
            of those that are complete.
    """
    if is_active():
        raise COMPARE.refuse(
            "tcgemm.use is active, so that torch's own products would be tcgemm's; end it first."
        )
    if isinstance(shapes_or_model, torch.nn.Module):
        to = Linear if to is None else to
        exchanges = EXCHANGES.get(to)
        of_layer = exchanges[0].options if exchanges else ()
        stray = next((name for name in OF_SHAPES if name in options and name not in of_layer), None)
        no_input = example_input is None
        faults: dict[str, object] = {
            "a model needs an example input; pass compare(model, example_input).": no_input,
            f"{stray} belongs to compare(shapes), and is no option of {name_of(to)}, but got a "
            "model; leave it out.": stray,
        }
        COMPARE.check(faults)
        return compare_model(
            shapes_or_model,
            example_input,
            to=to,
            options=options,
            against="torch" if against is None else against,
            seconds=seconds,
            progress=progress,
        )
    unknown = next((name for name in sorted(options) if name not in OF_SHAPES), None)
    names = ", ".join([*OF_SHAPES, "against", "seconds", "progress"])
    faults = {
        "the second argument is the example input of a model, but the first is a "
        f"{type(shapes_or_model).__name__}; pass compare(model, "
        "example_input).": example_input is not None,
        f"there is no argument {unknown}; there are {names}.": unknown,
        "to belongs to compare(model, example_input); leave it out.": to is not None,
    }
    COMPARE.check(faults)
    device = options.pop("device", None)
    cases = COMPARE.cases(shapes_or_model, **options)
    functions = COMPARE.baselines(BASELINES if against is None else against)
    device, report = COMPARE.device(device), COMPARE.progress(progress)
    seconds = COMPARE.seconds(seconds, device)
    jobs = [(functools.partial(work_of, case, device), case_fields(case, device)) for case in cases]
    with machine.current(device):
        facts = machine.facts(device) | {"method": METHOD}
        common = {"device": device, "seconds": seconds, "progress": report}
        return measured(jobs, functions, **common, result=lambda rows: Comparison(rows, facts))


compare.__module__ = "tcgemm"
