"""What swap_linear did: SwapReport, which prints, shows as HTML and takes everything back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

import torch

from tcgemm.nn.coverage import NotReached, percentage, quantity
from tcgemm.nn.exchange import layer_of

_SHOWN = 8  # kinds of modules that are not reached


class Step(NamedTuple):
    """The way back of one module."""

    name: str
    module: torch.nn.Module
    after: type[torch.nn.Module]  # the class that swap_linear gave it
    undo: Callable[[], None]

    def why_not(self, steps: list["Step"]) -> str | None:
        """Why the module cannot go back now, together with those of `steps`."""
        if type(self.module) is not self.after:
            return f"is a {type(self.module).__name__} now"
        if isinstance(self.module, torch.nn.MultiheadAttention):
            projection = self.module.out_proj
            if layer_of(projection) and all(step.module is not projection for step in steps):
                return f"has an out_proj that another swap made a {type(projection).__name__}"
        return None


@dataclass(repr=False)
class SwapReport:
    """The result of swap_linear, by names of modules in the model; "" is the model itself.

    It prints as text, shows as a table in a notebook, and has these fields:

    swapped (list): names of the modules that are tcgemm's now.
    skipped (dict): name -> the reason, of linear layers and their like that stayed.
    reached, weights (int): elements of matrices that tcgemm's layers multiply, and of all matrices
        of the model. Tables of embeddings do not count, unless a linear layer shares them.
    not_reached (list): (kind, modules, parameters, weights) of the modules that hold the others,
        by class, most weights first.

    After a swap to QuantLinear or SparseLinear24 the report holds the weights that undo() puts
    back: the memory is free when the report is gone.
    """

    swapped: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    reached: int = 0
    weights: int = 0
    not_reached: list[NotReached] = field(default_factory=list)
    _steps: list[Step] = field(default_factory=list, compare=False)
    _after_undo: Callable[[], None] | None = field(default=None, compare=False)

    def undo(self) -> None:
        """Makes every swapped module what it was before; a second time does nothing.

        Raises RuntimeError, and changes nothing, if a module is not what swap_linear made of it: a
        later swap exchanged it again (undo that first), or FSDP2 gave it a class of its own.
        """
        reasons = [(step.name, step.why_not(self._steps)) for step in self._steps]
        reasons = [(name, why) for name, why in reasons if why]
        if reasons:
            some = "; ".join(f"{name or 'the model'} {why}" for name, why in reasons[:4])
            more = f"; and {len(reasons) - 4} more" if reasons[4:] else ""
            raise RuntimeError(
                f"tcgemm.SwapReport.undo: nothing is undone, because {len(reasons)} of "
                f"{len(self._steps)} modules cannot go back: {some}{more}. Undo later swaps first, "
                "and fully_shard after undo(); tcgemm.swap_linear(model, to=torch.nn.Linear) takes "
                "back the others."
            )
        for step in reversed(self._steps):
            step.undo()
        self._steps.clear()
        if self._after_undo is not None:
            self._after_undo()

    def coverage(self) -> str:
        """ "reaches 6 % of 1.3 M weights in matrices; not reached: 2 MixtralExperts (...)"."""
        if not self.weights:
            return "the model has no weights in matrices"
        text = f"reaches {percentage(self.reached, self.weights)} of {quantity(self.weights)}"
        text += " weights in matrices"
        if self.not_reached:
            text += "; not reached: " + ", ".join(map(str, self.not_reached[:_SHOWN]))
        if self.not_reached[_SHOWN:]:
            text += f", and {len(self.not_reached) - _SHOWN} other classes"
        return text

    def __str__(self) -> str:
        lines = [f"{len(self.swapped)} swapped, {len(self.skipped)} skipped; {self.coverage()}"]
        lines += [f"  swapped  {name or '(the model)'}" for name in self.swapped]
        lines += [
            f"  skipped  {name or '(the model)'}: {why}" for name, why in self.skipped.items()
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *_ = str(self).split("\n")
        rows = [(name or "(the model)", "swapped", "") for name in self.swapped]
        rows += [(name or "(the model)", "skipped", why) for name, why in self.skipped.items()]
        cells = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        names = "<tr><th>module</th><th></th><th>reason</th></tr>"
        return f"<p>{escape(head)}</p><table>{names}{cells}</table>"
