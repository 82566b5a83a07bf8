"""2:4 sparsity: the tensor, what makes it, and what torch's operators do with it."""

from tcgemm.sparse import (  # noqa: F401  (they register with torch)
    arithmetic,
    in_place,
    matmul,
    memory,
    passes,
)
from tcgemm.sparse.prune import compress24, prune24
from tcgemm.sparse.tensor import SparseTensor24

__all__ = ["SparseTensor24", "compress24", "prune24"]
