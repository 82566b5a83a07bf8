"""Packed weights: the class, the function that packs, and the readers of other libraries' weights.

tcgemm/operands/packed has the code.
"""

from tcgemm.operands.packed import (
    PackedWeight,
    from_awq,
    from_bitsandbytes,
    from_gptq,
    from_mxfp4,
    from_torchao,
    pack_weight,
)

__all__ = [
    "PackedWeight",
    "from_awq",
    "from_bitsandbytes",
    "from_gptq",
    "from_mxfp4",
    "from_torchao",
    "pack_weight",
]
