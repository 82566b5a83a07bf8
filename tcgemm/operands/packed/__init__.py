"""Weights of 4 and 8 bits an element, packed beside 16-bit activations.

    pack.py        tcgemm.pack_weight
    weight.py      tcgemm.PackedWeight
    stored.py      its tensors, and the order of the kernels that it keeps
    formats.py     the formats
    parts.py       the tensors that are saved, and their checks
    codes.py       the numbers that codes stand for
    arrange.py     the order of the bytes that kernels read
    product.py     the operator packed_mm, and the products that call it
    view.py        the weight of a PackedLinear as other code sees it
    readers        weights of other libraries

The public names are below, and pack_weight and PackedWeight are names of tcgemm as well.
"""

from tcgemm.operands.packed import product  # noqa: F401  (makes PackedWeight an operand)
from tcgemm.operands.packed.pack import pack_weight
from tcgemm.operands.packed.readers import (
    from_awq,
    from_bitsandbytes,
    from_gptq,
    from_mxfp4,
    from_torchao,
)
from tcgemm.operands.packed.weight import PackedWeight

__all__ = [
    "PackedWeight",
    "from_awq",
    "from_bitsandbytes",
    "from_gptq",
    "from_mxfp4",
    "from_torchao",
    "pack_weight",
]
