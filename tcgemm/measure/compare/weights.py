"""The argument `weight` of tcgemm.compare and tcgemm.tune: the format of a packed weight."""

from typing import Any

from tcgemm.measure.case import FLOATS
from tcgemm.operands.packed.formats import FORMATS, check_group

NAME = "tcgemm.compare"
WEIGHTS: tuple[str, ...] = tuple(name for name in FORMATS if name != "table")


def refuse(text: str) -> RuntimeError:
    """The error for a call that tcgemm.compare refuses."""
    return RuntimeError(f"{NAME}: {text}")


def group_of(text: str) -> int | str | None:
    """The group size in an option of a command line: a number, "row", or "default"."""
    return None if text == "row" else text if text == "default" else int(text)


def term_of(
    weight: Any,
    group_size: Any,
    *,
    shapes: list[tuple[int, int, int, int]],
    dtypes: list[str],
    layouts: list[Any],
    arguments: dict[str, Any],
) -> str | None:
    """The term of the cases, such as "packed-int4-128"; None if there is no packed weight.

    arguments: the arguments that a packed weight excludes, by name.
    """
    if weight is None:
        if group_size != "default":
            raise refuse(
                f"group_size is {group_size!r}, but belongs to a packed weight; pass its format as "
                "weight, such as 'int4', or leave it out."
            )
        return None
    if not isinstance(weight, str) or weight not in WEIGHTS:
        formats = ", ".join(WEIGHTS)
        raise refuse(f"weight is {weight!r}, but there are {formats}; pass one of these.")
    for dtype in dtypes:
        if dtype not in FLOATS:
            raise refuse(
                f"weight is {weight!r}, which bf16 or f16 multiplies, but dtypes has {dtype}; "
                "leave it out."
            )
    if set(layouts) != {"TN"}:
        raise refuse(
            f"weight is {weight!r}, which has the layout TN, but layouts has {', '.join(layouts)}; "
            "pass layouts='TN'."
        )
    for name, value in arguments.items():
        if value:
            raise refuse(f"{name} does not go with a packed weight; leave {name} or weight out.")
    if any(batch > 1 for batch, *_ in shapes):
        raise refuse(
            "a packed weight is one matrix, but a shape has a batch; pass (batch * m, n, k)."
        )
    form = FORMATS[weight]
    size = form.default_group if group_size == "default" else group_size
    for *_, k in shapes:
        check_group(NAME, form, size, k)
    return f"packed-{weight}-{size or 'row'}"
