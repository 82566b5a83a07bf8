"""batch_invariant: the bits of a row do not depend on the number of rows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tcgemm.ops import query

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def batch_invariant() -> Iterator[None]:
    """Inside, the bits of a row of a product depend neither on M nor on the other rows.

    Example:
        >>> import tcgemm
        >>> with tcgemm.batch_invariant():
        ...     plan = tcgemm.info.plan("H200", "bf16", 64, 64, 65536)

    A GPU of compute capability 9.0 divides a long K into slices where the result has few tiles. The
    number of slices depends on M, N and K, and the sums of slices are rounded once more. Inside
    this context K has one slice, so that each element is one sum in the order of k. On the CPU and
    on other GPUs nothing changes.

    The context holds for all threads of the process, so that a backward has it, too. A CUDA graph
    keeps the kernels that it was captured with: capture it inside. Under torch.compile enter the
    context around the call of the compiled function, not in it.

    float32 products with precision "highest" are not covered: the planner takes float64 sums or
    16-bit terms, whichever is faster for M, N and K.
    """
    query.ask("_batch_invariant", 1)
    try:
        yield
    finally:
        query.ask("_batch_invariant", -1)
