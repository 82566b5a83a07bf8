"""Sub-byte integers: int4 and bits, their tensors and products."""

from tcgemm.operands.integers import operators  # noqa: F401  (it registers with torch)
from tcgemm.operands.integers.binary import BinaryTensor, binary_mm
from tcgemm.operands.integers.int4 import Int4Tensor
from tcgemm.ops.dtensor import rules_in

rules_in("tcgemm.operands.integers.sharding")

__all__ = ["BinaryTensor", "Int4Tensor", "binary_mm"]
