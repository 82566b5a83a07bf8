"""batch_invariant: the bits of a row do not depend on the number of rows.

    the context         counts in the library, which plans every product of the process by it
    an argument         of a product, which the gradients of the product have too
    in torch.compile    the context is traced: it becomes the argument of the products inside

`active` is the context as Python code sees it. Compiled functions guard on it, so that entering the
context around one compiles it again.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import torch

from tcgemm.ops import query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tcgemm.ops.epilogue import Epilogue

active: bool = False
_lock = threading.Lock()
_compiling = torch.compiler.is_compiling


def kept(epilogue: Epilogue) -> Epilogue:
    """The epilogue with what the context asks for: for a backward, which comes later, and for a
    graph, which outlives the context."""
    return epilogue._replace(batch_invariant=True) if active else epilogue


@contextlib.contextmanager
def batch_invariant() -> Iterator[None]:
    """Inside, the bits of a row of a product depend neither on M nor on the other rows.

    Example:
        >>> import tcgemm
        >>> with tcgemm.batch_invariant():
        ...     y = tcgemm.mm(torch.randn(64, 65536), torch.randn(65536, 64))

    On the CPU and on most GPUs nothing changes. On a GPU of compute capability 9.0:

    - N, K and the dtype decide the slices of a long K. Outside, their number depends on M, too.
      docs/numerics/same-bits.md has the rule. The gradient of a weight has one slice.
    - float32 products with precision "highest" run in float64. Outside, the planner takes float64
      or 16-bit terms, whichever is faster for the sizes, and the GPU chooses the terms by the
      values of all rows. The terms of a tcgemm.Prepared are not used.
    - alpha, `scale_a` and `scale_b` multiply in one order, whatever M is.

    With a long K few rows take up to 1.4 times as long, and many rows up to 1.35 times. float32
    products with precision "highest" take up to four times as long. Others cost nothing.

    The layers have this as an argument, and so have the products: tcgemm.nn.Linear(...,
    batch_invariant=True), tcgemm.mm(..., batch_invariant=True). A scale that is computed from all
    rows, as by tcgemm.quantize(x, dtype, "tensor"), depends on the other rows.

    The context holds for all threads of the process. A product inside keeps it for its gradients.
    What calls the forward again in the backward, such as gradient checkpointing, needs the context
    around the backward too. A CUDA graph keeps the kernels that it was captured with: capture it
    inside. torch.compile compiles a function once for inside and once for outside, and takes the
    context within a compiled function as well.
    """
    global active
    if _compiling():
        before, active = active, True
        try:
            yield
        finally:
            active = before
        return
    _change(1)
    try:
        yield
    finally:
        _change(-1)


def _change(by: int) -> None:
    global active
    with _lock:
        active = query.ask("_batch_invariant", by) > 0
