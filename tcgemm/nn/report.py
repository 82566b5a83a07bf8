"""The report of swap_linear: SwapReport prints, shows as HTML, and takes the swap back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from tcgemm.nn.constant import ConstantWeights
from tcgemm.nn.coverage import NotReached, percentage, quantity
from tcgemm.nn.exchange import layer_of
from tcgemm.ops.markup import escape, table

_SHOWN = 8  # the report names so many classes that are not reached


class Step(NamedTuple):
    """The swap of one module, and how to take it back."""

    name: str
    module: torch.nn.Module
    after: type[torch.nn.Module]  # the class that swap_linear gave it
    undo: Callable[[], None]

    def why_not(self, steps: list[Step]) -> str | None:
        """The reason why the module cannot go back now, together with the modules of `steps`."""
        if type(self.module) is not self.after:
            return f"is a {type(self.module).__name__} now"
        if isinstance(self.module, torch.nn.MultiheadAttention):
            projection = self.module.out_proj
            if layer_of(projection) and all(step.module is not projection for step in steps):
                return f"has an out_proj that another swap made a {type(projection).__name__}"
        return None


@dataclass(repr=False)
class SwapReport:
    """The result of tcgemm.swap_linear. It prints as text, and a notebook shows it as a table.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
        >>> report = tcgemm.swap_linear(model, skip="1")
        >>> report.swapped, report.skipped
        (['0'], {'1': 'skip names it'})
        >>> report.coverage()
        'reaches 88 % of 4.6 k weights in matrices; not reached: 1 Linear (weight)'
        >>> report.undo()
        >>> type(model[0])
        <class 'torch.nn.modules.linear.Linear'>

    Modules are named as in model.named_modules(); "" is the model itself.

    Attributes:
        swapped (list): the names of the modules that are tcgemm's now.
        skipped (dict): name -> reason, for linear layers and similar modules that stayed.
        reached (int): the number of elements in matrices that tcgemm's layers multiply.
        weights (int): the number of elements in all matrices of the model. Tables of embeddings
            do not count, unless a layer of tcgemm shares them. Nor does what no product multiplies
            as a matrix: biases, positions, the decays of Mamba, depthwise convolutions.
        not_reached (list): (kind, modules, parameters, weights) for each class of modules that has
            the other matrices, the class with most weights first.

    After a swap to QuantLinear or SparseLinear24 the report has the weights that undo() puts back.
    Their memory is freed with the report.
    """

    swapped: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    reached: int = 0
    weights: int = 0
    not_reached: list[NotReached] = field(default_factory=list)
    _steps: list[Step] = field(default_factory=list, compare=False)
    _after_undo: Callable[[], None] | None = field(default=None, compare=False)

    def undo(self) -> None:
        """Makes every swapped module what it was before. A second call does nothing.

        Raises RuntimeError, and changes nothing, if a module has another class than swap_linear
        gave it: a later swap exchanged it again (undo that swap first), or FSDP2 gave it a class.
        """
        reasons = [(step.name, step.why_not(self._steps)) for step in self._steps]
        reasons = [(name, why) for name, why in reasons if why]
        if reasons:
            some = "; ".join(f"{name or 'the model'} {why}" for name, why in reasons[:4])
            more = f"; and {len(reasons) - 4} more" if reasons[4:] else ""
            raise RuntimeError(
                f"tcgemm.SwapReport.undo: nothing is undone, because {len(reasons)} of "
                f"{len(self._steps)} modules cannot go back: {some}{more}. Undo later swaps first, "
                "and call fully_shard after undo(); tcgemm.swap_linear(model, to=torch.nn.Linear) "
                "takes the other modules back."
            )
        for step in reversed(self._steps):
            step.undo()
        self._steps.clear()
        if self._after_undo is not None:
            self._after_undo()

    def coverage(self) -> str:
        """A text such as "reaches 6 % of 1.3 M weights in matrices; not reached: 2 Experts (w)"."""
        if not self.weights:
            return "the model has no weights in matrices"
        text = f"reaches {percentage(self.reached, self.weights)} of {quantity(self.weights)}"
        text += " weights in matrices"
        if self.not_reached:
            text += "; not reached: " + ", ".join(map(str, self.not_reached[:_SHOWN]))
        if self.not_reached[_SHOWN:]:
            text += f", and {len(self.not_reached) - _SHOWN} other classes"
        return text

    def constant_microseconds(self, rows: int = 1) -> float:
        """What constant_weights saves of a call with so many rows, in microseconds: the sum of what
        tcgemm.explain estimates for each layer, on the layer's GPU, or on an H200."""
        known: dict[tuple[object, ...], float] = {}
        total = 0.0
        for layer in (step.module for step in self._steps):
            if isinstance(layer, ConstantWeights):
                tensors = [(x.shape, x.dtype, x.device) for x in layer._watched()]
                key = (type(layer), *tensors)
                if key not in known:
                    known[key] = layer._saved_microseconds(rows)
                total += known[key]
        return total

    def _head(self) -> list[str]:
        """The sentences of the report about the whole model."""
        head = [f"{len(self.swapped)} swapped, {len(self.skipped)} skipped; {self.coverage()}"]
        saved = self.constant_microseconds()
        if not saved:
            return head
        layers = [step.module for step in self._steps]
        is_on = any(isinstance(one, ConstantWeights) and one.constant_weights for one in layers)
        words = "saves" if is_on else "is off, and would save"
        return [*head, f"constant_weights {words} about {saved:.3g} us of a call with one row"]

    def __str__(self) -> str:
        lines = self._head()
        lines += [f"  swapped  {name or '(the model)'}" for name in self.swapped]
        lines += [
            f"  skipped  {name or '(the model)'}: {why}" for name, why in self.skipped.items()
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "; ".join(self._head())
        rows = [(name or "(the model)", "swapped", "") for name in self.swapped]
        rows += [(name or "(the model)", "skipped", why) for name, why in self.skipped.items()]
        return f"<p>{escape(head)}</p>{table(('module', '', 'reason'), rows)}"
