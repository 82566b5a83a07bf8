"""Fake implementations of the products: the shape, dtype and strides of each result.

torch.compile, export and FakeTensorMode call these with sizes that may be symbols. The dispatcher
calls them also for a tensor on meta beside tensors that have values; nobody would write the result
of such a call, so check_devices refuses it. csrc/ops/check has all other rules and their error
messages; the opcheck tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tcgemm import dtypes
from tcgemm.ops._torch_private import check
from tcgemm.ops.epilogue import ADDENDS
from tcgemm.ops.operators import ALL, PLAIN, Operator

_OPERANDS = tuple(row.torch for row in dtypes.TABLE)


def _result_shape(op, arguments):
    a, b = arguments["a"], arguments["b"]
    rows = a.shape[-2:-1]
    depth = a.shape[-1]
    if op.weight:
        batch_b, depth_b, columns = (), b.shape[1], b.shape[:1]
    elif b.dim() == 1:
        batch_b, depth_b, columns = (), b.shape[0], ()
    else:
        batch_b, depth_b, columns = b.shape[:-2], b.shape[-2], b.shape[-1:]
    # A sparse operand has half of K in its values.
    if arguments.get("sparse_a") is None and arguments.get("sparse_b") is None:
        check(
            depth == depth_b,
            lambda: (
                f"tcgemm.{op.name}: K is {depth} in a of shape {tuple(a.shape)}, but {depth_b} "
                f"in b of shape {tuple(b.shape)}."
            ),
        )
    return (*torch.broadcast_shapes(a.shape[:-2], batch_b), *rows, *columns)


def check_devices(function: str, tensors: Mapping[str, torch.Tensor | None]) -> None:
    """Checks that every tensor is on the device of the first, as check_devices of csrc/ops does.

    function: its name in errors, as "tcgemm.mm". tensors: by the names of the arguments.
    """
    present = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    (first, a), *others = present.items()
    for name, tensor in others:
        if tensor.device == a.device:
            continue
        remedy = f'move {name} with .to("{a.device}")'
        if "meta" in (tensor.device.type, a.device.type):  # there is nothing to move
            empty, device = (name, a.device) if a.device.type != "meta" else (first, tensor.device)
            remedy = (
                f"{empty} has no values on meta; make it on {device}, or load its values with "
                "load_state_dict(..., assign=True)"
            )
        raise RuntimeError(
            f"{function}: {name} is on {tensor.device}, but {first} is on {a.device}; all tensors "
            f"of a call must be on one device: {remedy}."
        )


def _check_dtypes(function, operands):
    """As check_operand_types of csrc/ops/check does."""
    for name, tensor in operands.items():
        if tensor.dtype not in _OPERANDS:
            raise RuntimeError(
                f"{function}: {name} is {tensor.dtype}, but a product takes torch.float16, "
                "torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, "
                "torch.float8_e5m2, torch.int8 and torch.uint8; convert both operands with "
                ".to(...)."
            )
    (first, a), (second, b) = operands.items()
    pair = {a.dtype, b.dtype}
    if len(pair) > 1 and not (pair <= set(dtypes.FP8) or pair <= set(dtypes.INT8)):
        raise RuntimeError(
            f"{function}: {second} is {b.dtype}, but {first} is {a.dtype}; both must have one "
            "dtype (the two of float8 may be mixed, and so may int8 and uint8): convert one of "
            "them with .to(...)."
        )


def _check_call(op, arguments):
    function = f"tcgemm.{op.name}" if op in PLAIN else "tcgemm"  # every function calls the others
    operands = dict(zip(op.operand_names, (arguments["a"], arguments["b"]), strict=True))
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    del tensors["a"], tensors["b"]
    check_devices(function, operands | tensors)
    if op in _DENSE:
        _check_dtypes(function, operands)


def gemm(op: Operator, shape: Callable[..., Any] = _result_shape) -> Callable[..., Any]:
    """The fake implementation of an operator that multiplies. shape(op, arguments by name) is the
    shape of its result."""

    def fake(*args: Any, out_dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        arguments = op.arguments(args, kwargs)
        _check_call(op, arguments)
        a = arguments["a"]
        out = a.new_empty(shape(op, arguments), dtype=out_dtype or dtypes.result(a.dtype))
        return (out, a.new_empty((), dtype=torch.float32)) if op.amax else out

    return fake


def _prepare(w):
    """On a GPU the number of bytes depends on the values: they decide the number of terms."""
    if w.dtype is not torch.float32:
        raise RuntimeError(
            f"tcgemm.prepare: w is {w.dtype}, but torch.float32 alone is split into terms before "
            "it is multiplied; pass such a w to the products as it is."
        )
    if w.dim() != 2:
        raise RuntimeError(
            "tcgemm.prepare: w must be a matrix (N, K), as the weight of tcgemm.linear, but has "
            f"shape {tuple(w.shape)}; prepare one matrix at a time."
        )
    size = torch.library.get_ctx().new_dynamic_size() if w.device.type == "cuda" else 0
    return w.new_empty(size, dtype=torch.uint8)


def _sum_rows(g, dtype):
    return g.new_empty(g.shape[-1:], dtype=dtype)


def _activation_backward(g, z, activation, dtype, sum_dtype=None):
    columns = () if sum_dtype is None else g.shape[-1:]
    sums = g.new_empty(columns or (0,), dtype=sum_dtype or g.dtype)
    return g.new_empty(g.shape, dtype=dtype), sums


def writes_out(op: Operator) -> Callable[..., None]:
    """The fake of an overload that writes into `out` and returns nothing."""

    def fake(*args: Any, **kwargs: Any) -> None:
        _check_call(op, op.arguments(args, kwargs))

    return fake


def register(op: Operator, shape: Callable[..., Any] = _result_shape) -> None:
    """Registers the fakes of all overloads of an operator that multiplies."""
    fake = gemm(op, shape)
    torch.library.register_fake(op.default, fake)
    if op.out is not None:
        torch.library.register_fake(op.out, writes_out(op))
    if op.with_z is not None:

        def with_z(*args: Any, **kwargs: Any) -> Any:
            out = fake(*args, **kwargs)
            return out, torch.empty_like(out)

        torch.library.register_fake(op.with_z, with_z)


_GENERAL = Operator("_gemm")
_GENERAL.positional = ("a", "b", *ADDENDS)
_DENSE = (*ALL, _GENERAL)  # the operators whose operands are a and b as they are
WITH_OUT = [op for op in (*ALL, _GENERAL) if op.out is not None]
for _op in (*ALL, _GENERAL):
    register(_op)
torch.library.register_fake(torch.ops.tcgemm.prepare.default, _prepare)
torch.library.register_fake(torch.ops.tcgemm._sum_rows.default, _sum_rows)
torch.library.register_fake(torch.ops.tcgemm._activation_backward.default, _activation_backward)
