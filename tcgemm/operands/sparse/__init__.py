"""2:4 sparsity: the tensor, the functions that make it, and torch's operators for it."""

from tcgemm.operands.sparse import (  # noqa: F401  (they register with torch)
    derivatives,
    matmul,
    operators,
    passes,
)
from tcgemm.operands.sparse.prune import compress24, prune24
from tcgemm.operands.sparse.tensor import SparseTensor24

__all__ = ["SparseTensor24", "compress24", "prune24"]
