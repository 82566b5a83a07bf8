"""The calls of SparseLinear24 without gradients, with arguments that were prepared before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tcgemm.operands.sparse.fast_path import Operands, operands_of
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops.kept import KeptForm

Call = Callable[[Tensor, Tensor | None], Tensor]  # takes x and the bias


@dataclass(slots=True)  # slots are read faster than the fields of a tuple
class ReadyCall:
    """The prepared arguments of a call without gradients."""

    weight: SparseTensor24
    names: tuple[str, str]  # the names of the buffers of values and metadata
    form: KeptForm  # the values
    learns: bool  # the values come from a dense weight
    operands: Operands
    calls: tuple[Call, Call]  # the second one loads the weight early

    def is_current(self, parameters: dict[str, Any], buffers: dict[str, Any]) -> bool:
        """True if the operands still have the tensors inside, the buffers and the dense weight."""
        operands, form = self.operands, self.form
        values, metadata = self.names
        return (
            operands is self.weight.fast_operands
            and operands.values.data_ptr() == operands.address
            and buffers.get(values) is operands.values
            and buffers.get(metadata) is self.weight.metadata
            and (not self.learns or (form.owner is parameters.get("weight") and bool(form)))
        )


def ready_call(
    weight: SparseTensor24,
    names: tuple[str, str],
    form: KeptForm,
    learns: bool,
    keywords: Mapping[str, Any],
) -> ReadyCall | None:
    """The arguments for later calls; None for a device without kernels."""
    operands = operands_of(weight)
    if operands is None:
        return None
    calls = operands.linear(keywords), operands.linear({**keywords, "constant_b": True})
    return ReadyCall(weight, names, form, learns, operands, calls)
