"""Weights of other libraries as PackedWeight, with the same values bit for bit."""

from tcgemm.operands.packed.readers.bitsandbytes import from_bitsandbytes
from tcgemm.operands.packed.readers.int32 import from_awq, from_gptq
from tcgemm.operands.packed.readers.mxfp4 import from_mxfp4
from tcgemm.operands.packed.readers.torchao import from_torchao

__all__ = ["from_awq", "from_bitsandbytes", "from_gptq", "from_mxfp4", "from_torchao"]
