"""Fake implementations of the products: the shape, dtype and strides of each result.

torch.compile, export and FakeTensorMode call these with sizes that may be symbols. The dispatcher
calls them also for a tensor on meta beside tensors that have values; nobody would write the result
of such a call, so check_devices refuses it. csrc has all other rules and their error messages: a
fake first calls the operator's kernel with meta tensors, which checks them and computes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tcgemm import dtypes
from tcgemm.ops._torch_private import below_dispatch_modes, check, device_free_kernel, size_hint
from tcgemm.ops.epilogue import ADDENDS
from tcgemm.ops.operators import ALL, PLAIN, Operator


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
    present = [(name, tensor) for name, tensor in tensors.items() if tensor is not None]
    (first, a), *others = present
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


def _meta(tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """A meta tensor of the dtype of a fake one."""
    if tensor.layout is not torch.strided:
        return torch.zeros(sizes, dtype=tensor.dtype, layout=tensor.layout, device="meta")
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")


def check_call(
    overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any], any_extents: bool = False
) -> None:
    """Raises what the kernel of an operator raises for a call with fake or meta tensors.

    A symbol stands for the size that its call was traced with. A size that only the data gives is
    not known: any_extents says that a kernel that takes these tensors takes them with sizes of 1
    too, which then stand for all sizes. Otherwise such a call is checked when it runs.
    """
    fakes = [value for value in (*args, *kwargs.values()) if hasattr(value, "fake_mode")]
    strided = [fake for fake in fakes if fake.layout is torch.strided]
    numbers = [n for fake in fakes for n in fake.shape] + [n for t in strided for n in t.stride()]
    known = all(size_hint(number) is not None for number in numbers)
    if not known and not any_extents:
        return

    def value(argument: Any) -> Any:
        if not hasattr(argument, "fake_mode"):
            return argument
        ones = (1,) * argument.dim()
        sizes = tuple(map(size_hint, argument.shape)) if known else ones
        is_strided = known and argument.layout is torch.strided
        strides = tuple(map(size_hint, argument.stride())) if is_strided else ones
        return _meta(argument, sizes, strides)

    with below_dispatch_modes():
        values = {name: value(argument) for name, argument in kwargs.items()}
        device_free_kernel(overload)(*map(value, args), **values)


def implement(
    overload: Any,
    results: Callable[..., Any],
    function: str = "tcgemm",
    *,
    any_extents: bool = False,
) -> None:
    """Registers the fake of an operator whose kernel checks meta tensors: it checks the call, and
    returns results(*arguments), which has the parameters of the operator.

    function: its name in errors. any_extents: see check_call.
    """
    parameters = inspect.signature(results)

    def fake(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs).arguments
        check_devices(function, {n: t for n, t in given.items() if isinstance(t, torch.Tensor)})
        check_call(overload, args, kwargs, any_extents)
        return results(*args, **kwargs)

    torch.library.register_fake(overload, fake)


# With these, sizes follow from numbers or bytes, and ones cannot stand for them.
_TIED = ("terms_b", "sparse_a", "sparse_b", "k")


def register(
    op: Operator,
    shape: Callable[..., Any] = _result_shape,
    any_extents: bool = True,
    function: str = "tcgemm",
) -> None:
    """Registers the fakes of all overloads of an operator that multiplies.

    shape(op, arguments by name) is the shape of its result. any_extents: see check_call. function:
    its name in errors; "tcgemm" if every function calls the operator.
    """

    def check_operands(overload: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        arguments = op.arguments(args, kwargs)
        tensors = {n: t for n, t in arguments.items() if isinstance(t, torch.Tensor)}
        operands = dict(zip(op.operand_names, (tensors.pop("a"), tensors.pop("b")), strict=True))
        check_devices(function, operands | tensors)
        tied = any(arguments.get(name) is not None for name in _TIED)
        check_call(overload, args, kwargs, any_extents and not tied)
        return arguments

    def result(arguments: dict[str, Any]) -> Any:
        a = arguments["a"]
        dtype = arguments.get("out_dtype") or dtypes.result(a.dtype)
        out = a.new_empty(shape(op, arguments), dtype=dtype)
        return (out, a.new_empty((), dtype=torch.float32)) if op.amax else out

    def default(*args: Any, **kwargs: Any) -> Any:
        return result(check_operands(op.default, args, kwargs))

    def out(*args: Any, **kwargs: Any) -> None:
        check_operands(op.out, args, kwargs)

    def with_z(*args: Any, **kwargs: Any) -> Any:
        out = result(check_operands(op.with_z, args, kwargs))
        return out, torch.empty_like(out)

    for overload, fake in ((op.default, default), (op.out, out), (op.with_z, with_z)):
        if overload is not None:
            torch.library.register_fake(overload, fake)


def _prepare(w):
    """On a GPU the number of bytes depends on the values: they decide the number of terms."""
    size = torch.library.get_ctx().new_dynamic_size() if w.device.type == "cuda" else 0
    return w.new_empty(size, dtype=torch.uint8)


def _sum_rows(g, dtype):
    return g.new_empty(g.shape[-1:], dtype=dtype)


def _activation_backward(g, z, activation, dtype, sum_dtype=None):
    columns = () if sum_dtype is None else g.shape[-1:]
    sums = g.new_empty(columns or (0,), dtype=sum_dtype or g.dtype)
    return g.new_empty(g.shape, dtype=dtype), sums


def _product_backward(
    g, a, b, weight, sum_dtype=None, alpha=1.0, precision=None, batch_invariant=False
):
    dtype, columns = dtypes.result(g.dtype), g.shape[-1]
    gradients = [g.new_empty(0) for _ in range(3)]
    if b is not None:
        gradients[0] = g.new_empty((*g.shape[:-1], b.shape[1 if weight else 0]), dtype=dtype)
    if a is not None:
        shape = (columns, a.shape[-1]) if weight else (a.shape[-1], columns)
        gradients[1] = g.new_empty(shape, dtype=dtype)
    if sum_dtype is not None:
        gradients[2] = g.new_empty(columns, dtype=sum_dtype)
    return tuple(gradients)


_GENERAL = Operator("_gemm")
_GENERAL.positional = ("a", "b", *ADDENDS)
WITH_OUT = [op for op in (*ALL, _GENERAL) if op.out is not None]
for _op in (*ALL, _GENERAL):
    register(_op, function=f"tcgemm.{_op.name}" if _op in PLAIN else "tcgemm")
implement(torch.ops.tcgemm.prepare.default, _prepare, any_extents=True)
implement(torch.ops.tcgemm._sum_rows.default, _sum_rows, any_extents=True)
implement(torch.ops.tcgemm._activation_backward.default, _activation_backward, any_extents=True)
implement(torch.ops.tcgemm._product_backward.default, _product_backward, any_extents=True)
