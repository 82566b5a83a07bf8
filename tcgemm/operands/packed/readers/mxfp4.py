"""mxfp4 as checkpoints of gpt-oss store it: blocks of 32 codes in 16 bytes, and exponents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tcgemm.operands.packed.readers.checks import check, made

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.operands.packed.weight import PackedWeight

_NAME = "tcgemm.packed.from_mxfp4"
_BYTES = 16  # of a block


def from_mxfp4(
    blocks: Tensor, scales: Tensor, *, dtype: torch.dtype | str | None = None
) -> PackedWeight:
    """Makes a PackedWeight of the blocks and scales of a matrix in mxfp4.

    Example:
        >>> blocks = torch.full((8, 2, 16), 0x22, dtype=torch.uint8)  # the code 2 is 1.0
        >>> scales = torch.full((8, 2), 127 + 3, dtype=torch.uint8)  # 2**3
        >>> tcgemm.packed.from_mxfp4(blocks, scales).dequantize()[0, 0].item()
        8.0

    A checkpoint of gpt-oss has `..._blocks` and `..._scales` of all experts in one tensor each:
    call this with the blocks and scales of one expert, `blocks[e], scales[e]`.

    Arguments:
        blocks (Tensor): uint8 (N, K/32, 16): two codes of e2m1 a byte, the even k in the low bits.
        scales (Tensor): uint8 (N, K/32), the exponent + 127; or float8_e8m0fnu, which is the same.
        dtype (torch.dtype): the dtype of dequantize(); default: bfloat16.

    Raises:
        TypeError: an argument is no tensor.
        RuntimeError: a dtype or a shape is another one.
    """
    check(_NAME, "blocks", blocks, (torch.uint8,), ("N", "K/32", _BYTES))
    n, groups = blocks.shape[:2]
    check(_NAME, "scales", scales, (torch.uint8, torch.float8_e8m0fnu), (n, groups))
    codes, scales = blocks.reshape(n, groups * _BYTES), scales.view(torch.float8_e8m0fnu)
    return made(_NAME, "mxfp4", codes, groups * 32, 32, dtype, scales=scales)
