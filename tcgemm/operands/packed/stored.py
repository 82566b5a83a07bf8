"""What a PackedWeight and its transpose share: the tensors, and the device order that is kept."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from tcgemm.operands.packed import arrange
from tcgemm.operands.packed.parts import Layout, Parts
from tcgemm.ops._torch_private import mark_static_address
from tcgemm.ops.prepared import TensorVersionGuard, capturing

_compiling = torch.compiler.is_compiling


class _Kept:
    """A device order, and guards that know whether the tensors that it was made of have changed."""

    order: torch.Tensor
    guards: tuple[TensorVersionGuard, ...]

    def __init__(self, order: Tensor, parts: Parts) -> None:
        self.order = order
        self.guards = tuple(map(TensorVersionGuard, parts.tensors().values()))

    def __bool__(self) -> bool:
        for guard in self.guards:  # as TensorVersionGuard compares, in half of its time
            tensor, (version, address, strides) = guard.tensor, guard.recorded
            if (
                tensor.data_ptr() != address
                or tensor.stride() != strides
                or (version is not None and tensor._version != version)
            ):
                return False
        return True

    # The getter is a C function: torch.compile guards on its result and does not trace it.
    unchanged: property = property(operator.truth)


class Stored:
    """The tensors of a packed weight. `parts` has them all; without codes they are in `tensors`."""

    tensors: Parts  # codes have no elements if they were released
    layout: Layout
    dtype: torch.dtype
    kept: _Kept | None
    released: torch.Tensor | None  # the device order that alone has the codes
    # Of product.py, by the dtype of the other operand, and whether the order is complete.
    calls: dict[tuple[torch.dtype, bool], Any]

    def __init__(self, parts: Parts, layout: Layout, dtype: torch.dtype) -> None:
        self.layout, self.dtype = layout, dtype
        self.replace(parts)

    def replace(self, parts: Parts) -> None:
        """Takes other tensors, of the same layout."""
        self.tensors, self.kept, self.released, self.calls = parts, None, None, {}

    @property
    def parts(self) -> Parts:
        """All tensors. Codes that were released are read from the device order in each call."""
        if self.released is None:
            return self.tensors
        order = arrange.order_of(self.tensors, self.layout)
        codes = arrange.codes_of(self.released, order, self.layout.k)
        return self.tensors._replace(codes=codes)

    def arranged(self) -> Tensor:
        """The device order, kept or new."""
        arrangement = self.kept
        if arrangement is not None and arrangement.unchanged:
            return arrangement.order
        with torch.no_grad():
            if _compiling():
                return arrange.arranged(self.parts, self.layout)
            with torch.inference_mode(False):
                order = arrange.arranged(self.parts, self.layout)
        plain = {type(tensor) for tensor in (order, *self.tensors.tensors().values())}
        if plain <= {torch.Tensor, torch.nn.Parameter} and not capturing(order):
            if order.is_cuda:
                mark_static_address(order)  # graphs of torch.compile do not copy it
                # Later products may run in other streams, and need not wait for this one.
                torch.cuda.current_stream(order.device).synchronize()
            self.kept = _Kept(order, self.tensors)
            if self.released is not None:
                self.released = order
        return order

    def release(self) -> bool:
        """Frees the codes, which the device order has as well. False if that is not kept now."""
        order = self.arranged()
        if self.kept is None:
            return False
        if self.released is None:
            self.released = order
            self.tensors = self.tensors._replace(codes=self.tensors.codes.new_empty(0))
            self.kept = _Kept(order, self.tensors)
        return True
