"""What a PackedWeight and its transpose share: the tensors, and the device order that is kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tcgemm.operands.packed import arrange
from tcgemm.operands.packed.parts import Layout, Parts
from tcgemm.ops.kept import KeptForm

_compiling = torch.compiler.is_compiling


class Stored:
    """The tensors of a packed weight. `parts` has them all; without codes they are in `tensors`."""

    tensors: Parts  # codes have no elements if they were released
    layout: Layout
    dtype: torch.dtype
    form: KeptForm  # the device order
    released: torch.Tensor | None  # the device order that alone has the codes
    # Of product.py, by the dtype of the other operand, and whether the order is complete.
    calls: dict[tuple[torch.dtype, bool], Any]

    def __init__(
        self, parts: Parts, layout: Layout, dtype: torch.dtype, form: KeptForm | None = None
    ) -> None:
        """form: the order of former tensors, whose address the order of these gets."""
        self.layout, self.dtype = layout, dtype
        self.form = KeptForm(compares=True) if form is None else form
        self.replace(parts)

    def replace(self, parts: Parts) -> None:
        """Takes other tensors, of the same layout."""
        self.tensors, self.released, self.calls = parts, None, {}
        if not self.form.is_of(self.sources):
            self.form.forget()

    @property
    def sources(self) -> list[Tensor]:
        """The tensors that the device order is computed of."""
        return [*self.tensors.tensors().values()]

    @property
    def parts(self) -> Parts:
        """All tensors. Codes that were released are read from the device order in each call."""
        if self.released is None:
            return self.tensors
        order = arrange.order_of(self.tensors, self.layout)
        codes = arrange.codes_of(self.released, order, self.layout.k)
        return self.tensors._replace(codes=codes)

    def _arranged(self) -> tuple[Tensor]:
        return (arrange.arranged(self.parts, self.layout),)

    def arranged(self) -> Tensor:
        """The device order, kept or new."""
        form = self.form
        if form.guards and form.unchanged:  # torch.compile can ask no new form the second question
            return form.tensors[0]
        with torch.no_grad():
            if _compiling():
                return self._arranged()[0]
            return form.current(self.sources, self._arranged)[0]

    def refresh(self) -> None:
        """Writes the device order again, as KeptForm.write does without a wait."""
        self.form.write(self.sources, self._arranged, waits=False)
        if self.released is not None:
            self.released = self.form.tensors[0]

    def release(self) -> bool:
        """Frees the codes, which the device order has as well. False if that is not kept now."""
        order = self.arranged()
        if not self.form.unchanged:
            return False
        if self.released is None:
            self.released = order
            self.tensors = self.tensors._replace(codes=self.tensors.codes.new_empty(0))
            self.form.guard(self.sources)
        return True
