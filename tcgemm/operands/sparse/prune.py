"""Pruning to 2:4 sparsity, and compression into a SparseTensor24.

w --prune24--> w with zeros --compress24--> SparseTensor24 --to_dense()--> w with zeros
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from tcgemm import dtypes
from tcgemm.operands.sparse.parts import DTYPES, GROUPS, default_pattern
from tcgemm.operands.sparse.positions import gather, keep, stored_elements
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops.arguments import check_flag, wrong_type
from tcgemm.ops.kept import capturing
from tcgemm.ops.memory import eager
from tcgemm.typing import PruneMethod, SparsePattern, words

METHODS = words(PruneMethod)
_MEND = "pass prune=True, or prune it with tcgemm.prune24 before"
_prune24 = eager(torch.ops.tcgemm.prune24.default)
_compress24 = eager(torch.ops.tcgemm.compress24.default)


def prune24(
    w: Tensor,
    *,
    method: PruneMethod = "magnitude",
    mask: Tensor | None = None,
    pattern: SparsePattern | None = None,
) -> Tensor:
    """Sets half of the elements of each group to zero. A group is four adjacent elements of a row.

    Example:
        >>> tcgemm.prune24(torch.tensor([[1.0, -3.0, 2.0, 0.5]]), pattern="2:4")
        tensor([[ 0., -3.,  2.,  0.]])

    Arguments:
        w (Tensor): (N, K) of float16, bfloat16, float32, int8, uint8, float8_e4m3fn, float8_e5m2;
            any strides. If K is not a multiple of the group, the last group counts as filled up
            with zeros.
        method (str): the elements that are kept.

            - "magnitude": the largest ones; the first of equal ones; NaN is larger than Inf
            - "transposable": two in each row and each column of blocks of 4 x 4, so that the
              transpose has the pattern too. Of all 90 such choices it is the one with the largest
              sum of magnitudes. Only for pattern "2:4".
            - "mask": those where `mask` is true

        mask (Tensor): bool, of w's shape. It keeps at most half of each group.
        pattern (str): "2:4" keeps two of four elements, "1:2" one of two. "1:2" is for float32
            only, and its default, because tensor cores multiply float32 with that pattern.

    Returns a contiguous tensor with w's shape and dtype. The CPU and a GPU give the same bits. The
    gradient for w is the gradient of the kept elements, and zero elsewhere.

    Raises:
        TypeError: w or mask is no tensor.
        RuntimeError: a shape, dtype or word that is not supported, or a mask that keeps too many
            elements; the message names the first such row and column. Checking a mask waits for
            the GPU.
    """
    if has_torch_function_variadic(w, mask):
        options = {"method": method, "mask": mask, "pattern": pattern}
        return handle_torch_function(prune24, (w, mask), w, **options)
    pattern = _checked_pattern("prune24", w, pattern)
    if method not in METHODS or (method == "mask") is not (mask is not None):
        came = f"method is {method!r} with{'out' if mask is None else ''} a mask"
        raise RuntimeError(
            f'tcgemm.prune24: {came}, but there are "magnitude", "transposable", and "mask" with a '
            "mask; pass one of these."
        )
    if mask is not None:
        return _by_mask(w, mask, pattern)
    transposable = method == "transposable"
    pruned = _prune24(w.detach(), pattern, transposable)
    if not (w.requires_grad and torch.is_grad_enabled()):
        return pruned
    return keep(kept24(pruned, pattern), w)


def kept24(w: Tensor, pattern: str) -> Tensor:
    """The mask of the elements that compress24 stores for a tensor of this pattern, where some of
    them may be zeros."""
    values, metadata, _excess = _compress24(w, pattern)
    return stored_elements(values, metadata, w.shape[1], pattern)


def _by_mask(w, mask, pattern):
    if not isinstance(mask, torch.Tensor):
        raise wrong_type("prune24", "mask", mask)
    if mask.dtype is not torch.bool or mask.shape != w.shape or mask.device != w.device:
        raise RuntimeError(
            f"tcgemm.prune24: mask is {mask.dtype} of shape {tuple(mask.shape)} on {mask.device}, "
            f"but it must be torch.bool of w's shape {tuple(w.shape)} on {w.device}; convert it."
        )
    counted = mask.to(torch.float32 if pattern == "1:2" else torch.uint8)
    excess = _compress24(counted, pattern)[2]
    _check_excess("prune24", "mask", excess, mask, pattern, "keep fewer")
    return keep(mask, w).contiguous()


def compress24(
    w: Tensor,
    *,
    pattern: SparsePattern | None = None,
    prune: bool = False,
    transposable: bool = False,
    dense_gradient: bool = False,
) -> SparseTensor24:
    """Compresses a matrix with 2:4 sparsity into a SparseTensor24; prune=True prunes it first.

    Example:
        >>> w = tcgemm.compress24(torch.randn(16, 32).half(), prune=True)
        >>> torch.equal(tcgemm.compress24(w.to_dense()).values, w.values)
        True

    Arguments:
        w (Tensor): (N, K) of float16, bfloat16, float32, int8, uint8, float8_e4m3fn, float8_e5m2;
            any strides, any size.
        pattern (str): "2:4" (at most two of four adjacent elements of a row are not zero) or "1:2"
            (at most one of two). "1:2" is for float32 only, and its default.
        prune (bool): True keeps the largest elements of each group, as prune24 does (with
            `transposable`, as its method "transposable" does). False raises an error for a tensor
            without the pattern; this check waits for the GPU once.
        transposable (bool): True also compresses the transpose, which must have the pattern too,
            for products with it, such as gradients. This takes twice the memory.
        dense_gradient (bool): True makes gradients of the result dense instead of masked.

    Returns a tcgemm.SparseTensor24. Its to_dense() has the bits of w at the kept elements, also of
    -0 and NaN. Gradients reach w.

    Raises:
        TypeError: w is no tensor.
        RuntimeError: w does not have the pattern; the message has the number of groups with too
            many elements other than zero, and the row and column of the first. Or a shape, dtype
            or pattern is not supported. Or a call without prune is inside torch.compile or the
            capture of a CUDA graph.
    """
    if has_torch_function_variadic(w):
        options = {"pattern": pattern, "prune": prune, "transposable": transposable}
        return handle_torch_function(compress24, (w,), w, **options, dense_gradient=dense_gradient)
    flags = {"prune": prune, "transposable": transposable, "dense_gradient": dense_gradient}
    for name, value in flags.items():
        check_flag("compress24", name, value)
    pattern = _checked_pattern("compress24", w, pattern)
    if not prune and (torch.compiler.is_compiling() or capturing(w)):
        raise RuntimeError(
            "tcgemm.compress24: the check that w has the pattern is not possible inside "
            "torch.compile or the capture of a CUDA graph; compress w before, or pass prune=True."
        )
    source = w.detach()
    if prune and transposable:
        source = _prune24(source, pattern, True)
    transpose = None
    if transposable and prune:
        values, metadata, transpose = parts_of_both(source, is_stored(source))
    else:
        values, metadata = _compressed("w", source, pattern, prune, prune)
    if transposable and not prune:
        transpose = _compressed("w.t()", source.t(), pattern, False, False)
        if pattern == "2:4":
            values, metadata, transpose = parts_of_both(source, is_stored(source))
    compressed = SparseTensor24.from_parts(
        *(values, metadata, w.shape[1], pattern),
        transpose=transpose,
        dense_gradient=dense_gradient,
        trusted=True,
    )
    return compressed.mask(w) if w.requires_grad and torch.is_grad_enabled() else compressed


def is_stored(w: Tensor) -> Tensor:
    """The mask of the elements other than zero."""
    if w.dtype in dtypes.FP8:  # torch does not compare these
        return (w.view(torch.uint8) & 0x7F) != 0
    return w != 0


def parts_of_both(w: Tensor, kept: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """(values, metadata, those of the transpose) of pattern "2:4", with the same elements in both.

    Arguments:
        w (Tensor): (N, K).
        kept (Tensor): bool, N rows and K columns, or K filled up to whole groups. Elements are
            added until each row and each column of blocks of 4 x 4 has two; some of them lie
            outside of the matrix if N or K is no multiple of four. Elements of a mask that is no
            transposable one are left out.
    """
    n, k = w.shape
    padding = (0, -kept.shape[1] % 4, 0, -n % 4)
    marks = torch.nn.functional.pad(kept.to(torch.uint8) * 15, padding) + 1
    both = _prune24(marks, "2:4", True)  # a kept element counts more than all others of a block
    metadata = _compress24(both, "2:4")[1][:n]
    other = _compress24(both.t(), "2:4")[1][:k]
    return gather(w, metadata, "2:4"), metadata, (gather(w.t(), other, "2:4"), other)


def _compressed(name, source, pattern, prune, fits):
    values, metadata, excess = _compress24(source, pattern, prune)
    if not fits and not source.is_meta:
        _check_excess("compress24", name, excess, source, pattern, _MEND)
    return values, metadata


def _check_excess(function, name, excess, tensor, pattern, mend):
    count, first = excess.tolist()
    if count == 0:
        return
    row, column = divmod(first, tensor.shape[1])
    group = GROUPS[pattern]
    raise RuntimeError(
        f"tcgemm.{function}: {name} does not have the pattern {pattern}: at most {group // 2} of "
        f"{group} adjacent elements may be other than zero, but {count} groups have more, the "
        f"first at row {row}, column {column}; {mend}."
    )


def _checked_pattern(function: str, w: Tensor, pattern: SparsePattern | None) -> SparsePattern:
    """The pattern, or the default one of the dtype. Raises an error if w or pattern is wrong."""
    if not isinstance(w, torch.Tensor):
        raise wrong_type(function, "w", w)
    if w.is_nested:
        raise RuntimeError(
            f"tcgemm.{function}: w is a nested tensor, but it must be a matrix; call it for each "
            "part of w.unbind()."
        )
    if w.dim() != 2 or w.dtype not in DTYPES:
        names = ", ".join(str(dtype) for dtype in DTYPES)
        raise RuntimeError(
            f"tcgemm.{function}: w is {w.dtype} of shape {tuple(w.shape)}, but it must be a matrix "
            f"of {names}; convert or reshape it."
        )
    pattern = default_pattern(w.dtype) if pattern is None else pattern
    valid = isinstance(pattern, str) and pattern in GROUPS
    if not valid or (pattern == "1:2" and w.dtype is not torch.float32):
        raise RuntimeError(
            f"tcgemm.{function}: pattern is {pattern!r} for w of {w.dtype}, but there are '2:4', "
            "and '1:2' for torch.float32; pass one of these."
        )
    return pattern
