"""Pruning to 2:4 sparsity, and compression into a SparseTensor24.

w --prune24--> w with zeros --compress24--> SparseTensor24 --to_dense()--> w with zeros
"""

import torch
from torch.overrides import handle_torch_function, has_torch_function_variadic

from tcgemm.ops import autograd
from tcgemm.ops.arguments import wrong_type
from tcgemm.ops.prepack import capturing
from tcgemm.sparse.tensor import DTYPES, GROUPS, SparseTensor24, default_pattern, keep

METHODS = ("magnitude", "transposable", "mask")
_MEND = "pass prune=True, or what tcgemm.prune24 makes of it"
_OPS = torch.ops.tcgemm


def prune24(w, *, method="magnitude", mask=None, pattern=None):
    """Makes half of each group of adjacent elements of a row zero, and changes nothing else.

    Arguments:
        w (Tensor): (N, K) of float16, bfloat16, float32, int8, uint8, float8_e4m3fn, float8_e5m2;
            any strides. A last group that K cuts short counts as filled up with zeros.
        method (str):
            "magnitude"     keeps the largest, the first of equal ones; NaN is larger than Inf
            "transposable"  keeps two in each row and each column of blocks of 4 x 4, so that the
                            transpose has the pattern too: of all 90 such choices the one of the
                            largest sum of magnitudes (pattern "2:4")
            "mask"          keeps where `mask` is true
        mask (Tensor): bool, of w's shape; its rows have the pattern.
        pattern (str): "2:4" keeps two of four, "1:2" one of two (float32 alone, whose default it
            is: tensor cores take that).

    Returns a contiguous tensor like w. The CPU and a GPU give the same bits. A gradient goes to
    what was kept.

    Raises TypeError if w or mask is no tensor, RuntimeError with a sentence for everything else;
    of a mask without the pattern it names the first row and column. Checking a mask waits for the
    GPU.

    Example:
        >>> tcgemm.prune24(torch.tensor([[1.0, -3.0, 2.0, 0.5]]), pattern="2:4")
        tensor([[ 0., -3.,  2.,  0.]])
    """
    if has_torch_function_variadic(w, mask):
        options = {"method": method, "mask": mask, "pattern": pattern}
        return handle_torch_function(prune24, (w, mask), w, **options)
    pattern = _checked("prune24", w, pattern)
    if method not in METHODS or (method == "mask") is not (mask is not None):
        came = f"method is {method!r} with{'out' if mask is None else ''} a mask"
        raise RuntimeError(
            f'tcgemm.prune24: {came}, but there are "magnitude", "transposable", and "mask" with a '
            "mask; pass one of these."
        )
    if mask is not None:
        return _by_mask(w, mask, pattern)
    transposable = method == "transposable"
    pruned = autograd.without_grad(_OPS.prune24.default, w.detach(), pattern, transposable)
    if not (w.requires_grad and torch.is_grad_enabled()):
        return pruned
    return keep(kept24(pruned, pattern), w)


def kept24(w, pattern):
    """The mask of the elements that a tensor of this pattern stores, zeros included."""
    values, metadata, _excess = autograd.without_grad(_OPS.compress24.default, w, pattern)
    ones = torch.ones_like(values, dtype=torch.uint8 if pattern == "2:4" else torch.float32)
    return (
        autograd.without_grad(_OPS.decompress24.default, ones, metadata, w.shape[1], pattern) != 0
    )


def _by_mask(w, mask, pattern):
    if not isinstance(mask, torch.Tensor):
        raise wrong_type("prune24", "mask", mask)
    if mask.dtype is not torch.bool or mask.shape != w.shape or mask.device != w.device:
        raise RuntimeError(
            f"tcgemm.prune24: mask is {mask.dtype} of shape {tuple(mask.shape)} on {mask.device}, "
            f"but w of shape {tuple(w.shape)} on {w.device} needs torch.bool there; convert it."
        )
    counted = mask.to(torch.float32 if pattern == "1:2" else torch.uint8)
    excess = autograd.without_grad(_OPS.compress24.default, counted, pattern)[2]
    _check_excess("prune24", "mask", excess, mask, pattern, "keep fewer")
    return keep(mask, w).contiguous()


def compress24(w, *, pattern=None, prune=False, transposable=False, dense_gradient=False):
    """Compresses a matrix that has the pattern into a SparseTensor24, or prunes it first.

    Arguments:
        w (Tensor): (N, K) of float16, bfloat16, float32, int8, uint8, float8_e4m3fn, float8_e5m2;
            any strides, any size.
        pattern (str): "2:4" (at most two of four adjacent elements of a row are not zero) or
            "1:2" (at most one of two; float32 alone, whose default it is).
        prune (bool): True keeps the largest of each group, as prune24 does (with transposable as
            its "transposable" does). False refuses a tensor without the pattern, which waits for
            the GPU once.
        transposable (bool): also compresses the transpose, which has to have the pattern too: for
            products with it, as that of a gradient. Twice the memory.
        dense_gradient (bool): gradients of the result are dense instead of masked.

    Returns a tcgemm.SparseTensor24, whose to_dense() is w exactly (-0 and NaN are kept as they
    are). A gradient goes back to w.

    Raises:
        TypeError: w is no tensor.
        RuntimeError: w does not have the pattern: how many groups have too many elements that are
            not zero, and the row and column of the first; a shape, dtype or pattern that is not
            there; a call without prune inside torch.compile or the capture of a CUDA graph.

    Example:
        >>> w = tcgemm.compress24(torch.randn(16, 32).half(), prune=True)
        >>> torch.equal(tcgemm.compress24(w.to_dense()).values, w.values)
        True
    """
    if has_torch_function_variadic(w):
        options = {"pattern": pattern, "prune": prune, "transposable": transposable}
        return handle_torch_function(compress24, (w,), w, **options, dense_gradient=dense_gradient)
    pattern = _checked("compress24", w, pattern)
    if not prune and (torch.compiler.is_compiling() or capturing(w)):
        raise RuntimeError(
            "tcgemm.compress24: whether w has the pattern cannot be read inside torch.compile or "
            "the capture of a CUDA graph; compress it before, or pass prune=True."
        )
    source = w.detach()
    if prune and transposable:
        source = autograd.without_grad(_OPS.prune24.default, source, pattern, True)
    values, metadata = _compressed("w", source, pattern, prune and not transposable, prune)
    transpose = None
    if transposable:
        transpose = _compressed("w.t()", source.t(), pattern, False, prune)
    options = {"turned": transpose, "dense_gradient": dense_gradient, "trusted": True}
    compressed = SparseTensor24.from_parts(values, metadata, w.shape[1], pattern, **options)
    return compressed.mask(w) if w.requires_grad and torch.is_grad_enabled() else compressed


def _compressed(name, source, pattern, prune, fits):
    values, metadata, excess = autograd.without_grad(
        _OPS.compress24.default, source, pattern, prune
    )
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
        f"tcgemm.{function}: {name} does not have the pattern {pattern}: of {group} neighbours at "
        f"most {group // 2} may be other than zero, but {count} groups have more, the first at row "
        f"{row}, column {column}; {mend}."
    )


def _checked(function, w, pattern):
    """The pattern, or the default one of the dtype; raises for what cannot be compressed."""
    if not isinstance(w, torch.Tensor):
        raise wrong_type(function, "w", w)
    if w.is_nested:
        raise RuntimeError(
            f"tcgemm.{function}: w is a nested tensor, but it must be a matrix; pass one part of "
            "w.unbind() after the other."
        )
    if w.dim() != 2 or w.dtype not in DTYPES:
        names = ", ".join(str(each) for each in DTYPES)
        raise RuntimeError(
            f"tcgemm.{function}: w is {w.dtype} of shape {tuple(w.shape)}, but it must be a matrix "
            f"of {names}; convert or reshape it."
        )
    pattern = default_pattern(w.dtype) if pattern is None else pattern
    known = isinstance(pattern, str) and pattern in GROUPS
    if not known or (pattern == "1:2" and w.dtype is not torch.float32):
        raise RuntimeError(
            f"tcgemm.{function}: pattern is {pattern!r} for w of {w.dtype}, but there are '2:4', "
            "and '1:2' for torch.float32; pass one of these."
        )
    return pattern
