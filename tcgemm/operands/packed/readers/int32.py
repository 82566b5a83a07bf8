"""The layouts of GPTQ and AWQ: eight codes of 4 bits in an int32.

    qweight of GPTQ    (K/8, N)    word i of a column has the rows 8 i .. 8 i + 7, the first one low
    qweight of AWQ     (K, N/8)    word i of a row has the columns 8 i + 0, 2, 4, 6, 1, 3, 5, 7
    qzeros             (G, N/8)    of GPTQ in the order of columns, of AWQ as qweight
    scales             (G, N)

In both the weight is (code - zero) * scale, transposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from tcgemm.operands.packed.codes import MIDDLE, pack_nibbles
from tcgemm.operands.packed.formats import FLOATS
from tcgemm.operands.packed.readers.checks import check, made

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.operands.packed.weight import PackedWeight

_PER_WORD = 8
_ONES = 0x11111111  # 1 in each four bits of a word
_SYMMETRIC = (7, 8)  # the zero points of a symmetric file as versions 1 and 2 store them
_OVERFLOWS = ("error", "keep", "wrap", "carry")
_IN_ORDER = tuple(range(_PER_WORD))
_AWQ = (0, 2, 4, 6, 1, 3, 5, 7)  # the column of each four bits of a word, from the low ones


def from_gptq(
    qweight: Tensor,
    scales: Tensor,
    qzeros: Tensor | None = None,
    g_idx: Tensor | None = None,
    *,
    version: int = 1,
    sym: bool | None = None,
    overflow: Literal["error", "keep", "wrap", "carry"] = "error",
    dtype: torch.dtype | str | None = None,
) -> PackedWeight:
    """Makes a PackedWeight of the tensors of a layer in the layout of GPTQ, with 4 bits.

    Example:
        >>> qweight = torch.zeros(16, 32, dtype=torch.int32)  # K = 128, N = 32
        >>> w = tcgemm.packed.from_gptq(qweight, torch.ones(2, 32).half())
        >>> w.shape, w.group_size, w.dequantize()[0, 0].item()
        (torch.Size([32, 128]), 64, -8.0)

    AutoGPTQ, GPTQModel and transformers write this layout (quant_method "gptq").

    Arguments:
        qweight (Tensor): int32 (K/8, N).
        scales (Tensor): (G, N) of float16, bfloat16 or float32, with G groups along K.
        qzeros (Tensor): int32 (G, N/8). None: every zero point is 8.
        g_idx (Tensor): (K,), the group of each input, or None. It must be k // (K / G).
        version (int): 1 if qzeros holds zero points less 1, as in checkpoints with the
            checkpoint_format "gptq"; 2 if it holds them as they are, as in "gptq_v2".
        sym (bool): the "sym" of the checkpoint's config. True: every zero point is 8. qzeros must
            hold 7 or 8 alone, whichever the version is. False: zero points are read as `version`
            says. None: as False, but zero points that are one beside 8 in every group are refused,
            because some programs write version 2 and name it "gptq".
        overflow (str): what a 15 in qzeros of version 1 means, because four bits hold no -1. There
            are three ways to read a file whose zero point was 0 before the 1 was subtracted:

            - "keep": 16, as AutoGPTQ and vLLM compute.
            - "wrap": 0, as kernels of ExLlama compute.
            - "carry": 0, and the next zero point of the word is one more, because the 1 was
              subtracted from the word as a whole, as GPTQModel does.
            - "error", the default: such a file is refused.
        dtype (torch.dtype): the dtype of dequantize(); default: the dtype of scales.

    A weight whose zero points are all 8 has none: its products take less time.

    Raises:
        TypeError: an argument is no tensor.
        RuntimeError: a dtype or a shape is another one; the inputs of a group do not follow each
            other ("desc_act": true with groups); or the zero points do not fit `version` and `sym`.
    """
    function = "tcgemm.packed.from_gptq"
    check(function, "qweight", qweight, (torch.int32,), ("K/8", "N"))
    if version not in (1, 2):
        raise RuntimeError(
            f"{function}: version is {version!r}, but there are 1 (the format 'gptq') and 2 "
            "('gptq_v2'); pass one of these."
        )
    if overflow not in _OVERFLOWS:
        raise RuntimeError(
            f"{function}: overflow is {overflow!r}, but it must be one of "
            f"{', '.join(map(repr, _OVERFLOWS))}; pass one of these."
        )
    if sym not in (None, True, False):
        raise RuntimeError(
            f"{function}: sym is {sym!r}, but it must be True, False or None; pass the 'sym' of "
            "the checkpoint's config."
        )
    k, n = qweight.shape[0] * _PER_WORD, qweight.shape[1]
    _check_groups(function, k, n, scales, qzeros)
    if g_idx is not None:
        check(function, "g_idx", g_idx, (torch.int32, torch.int64), (k,))
        size = k // max(scales.shape[0], 1)
        if not torch.equal(g_idx.cpu().long(), torch.arange(k, device="cpu") // max(size, 1)):
            raise RuntimeError(
                f"{function}: g_idx is not k // {size}, so the inputs of a group do not follow "
                "each other ('desc_act': true), but in a PackedWeight they do; quantise the "
                "model without act-order, or multiply the dequantised weight."
            )
    codes = _unpacked(qweight.t(), _IN_ORDER)
    zeros = None if qzeros is None else _gptq_zeros(function, qzeros, version, sym, overflow)
    return _weight(function, codes, scales, zeros, dtype)


def _gptq_zeros(
    function: str, qzeros: Tensor, version: int, sym: bool | None, overflow: str
) -> Tensor | None:
    """The zero points uint8 (G, N) of a file of GPTQ, or None where all are 8."""
    stored = _unpacked(qzeros, _IN_ORDER)
    if stored.is_meta or stored.numel() == 0:
        return stored
    low, high = int(stored.amin()), int(stored.amax())
    same = low if low == high else None
    if sym:
        if same not in _SYMMETRIC:
            raise RuntimeError(
                f"{function}: sym is True, so qzeros must hold 7 or 8 alone, but it holds numbers "
                f"from {low} to {high}; pass sym=False if the zero points are part of the weight, "
                "or qzeros=None if they are to be ignored."
            )
        return None
    if same == _SYMMETRIC[version - 1]:
        return None
    if sym is None and same in _SYMMETRIC:
        raise RuntimeError(
            f"{function}: qzeros holds {same} alone, so in version {version} every zero point is "
            f"{same + 2 - version}, but a symmetric file of version {3 - version} holds {same}; "
            f"pass sym=True or version={3 - version} if every zero point is 8, or sym=False if it "
            f"is {same + 2 - version}."
        )
    if version == 2:
        return stored
    if high == 15 and overflow == "error":
        count = int((stored == 15).sum())
        raise RuntimeError(
            f"{function}: qzeros of version 1 holds 15 at {count} of {stored.numel()} places, "
            "which programs read as the zero point 16 or 0; pass overflow='keep' for 16, 'wrap' "
            "for 0, or 'carry' if GPTQModel converted the file from version 2."
        )
    if overflow == "carry":
        return _unpacked((qzeros.long() + _ONES).to(torch.int32), _IN_ORDER)
    return stored + 1 & 15 if overflow == "wrap" else stored + 1


def from_awq(
    qweight: Tensor,
    scales: Tensor,
    qzeros: Tensor | None = None,
    *,
    dtype: torch.dtype | str | None = None,
) -> PackedWeight:
    """Makes a PackedWeight of the tensors of a layer in the layout of AutoAWQ's GEMM version.

    Example:
        >>> qweight = torch.zeros(128, 4, dtype=torch.int32)  # K = 128, N = 32
        >>> qzeros = torch.zeros(1, 4, dtype=torch.int32)
        >>> tcgemm.packed.from_awq(qweight, torch.ones(1, 32).half(), qzeros).shape
        torch.Size([32, 128])

    Arguments:
        qweight (Tensor): int32 (K, N/8).
        scales (Tensor): (G, N) of float16, bfloat16 or float32, with G groups along K.
        qzeros (Tensor): int32 (G, N/8). None: every zero point is 8.
        dtype (torch.dtype): the dtype of dequantize(); default: the dtype of scales.

    Raises:
        TypeError: an argument is no tensor.
        RuntimeError: a dtype or a shape is another one.
    """
    function = "tcgemm.packed.from_awq"
    check(function, "qweight", qweight, (torch.int32,), ("K", "N/8"))
    k, n = qweight.shape[0], qweight.shape[1] * _PER_WORD
    _check_groups(function, k, n, scales, qzeros)
    zeros = None if qzeros is None else _unpacked(qzeros, _AWQ)
    if zeros is not None and not zeros.is_meta and bool((zeros == MIDDLE).all()):
        zeros = None
    return _weight(function, _unpacked(qweight, _AWQ).t(), scales, zeros, dtype)


def _check_groups(function: str, k: int, n: int, scales: Tensor, qzeros: Tensor | None) -> None:
    check(function, "scales", scales, FLOATS, ("G", n))
    groups = scales.shape[0]
    if groups == 0 or k % groups:
        raise RuntimeError(
            f"{function}: scales has {groups} groups, which do not divide the {k} inputs evenly; "
            "pass the tensors of one layer."
        )
    if qzeros is not None:
        check(function, "qzeros", qzeros, (torch.int32,), (groups, n // _PER_WORD))


def _unpacked(words: Tensor, order: tuple[int, ...]) -> Tensor:
    """int32 (R, C) -> the codes uint8 (R, 8 C). `order`: the column of each four bits."""
    shifts = [4 * order.index(column) for column in range(_PER_WORD)]
    shifts = torch.tensor(shifts, dtype=torch.int32, device="cpu").to(words.device)
    codes = words.unsqueeze(-1) >> shifts & 15
    return codes.flatten(-2).to(torch.uint8)


def _weight(
    function: str,
    codes: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    dtype: torch.dtype | str | None,
) -> PackedWeight:
    """The weight of codes (N, K), and of scales and zero points (G, N)."""
    k = codes.shape[1]
    points = None if zeros is None else zeros.t().contiguous()
    codes = pack_nibbles(codes ^ MIDDLE if zeros is None else codes)
    scales = scales.detach().t().contiguous()
    size = k // scales.shape[1]
    return made(function, "int4", codes, k, size, dtype, scales=scales, zero_points=points)
