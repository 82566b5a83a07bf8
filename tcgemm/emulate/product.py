"""The bits of tcgemm.mm on a GPU: the plan, the sums of its kernel, and its epilogue."""

from __future__ import annotations

from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor

from tcgemm import dtypes, info
from tcgemm.emulate import packed, rounding, split_product, sums, tf32x2
from tcgemm.emulate.stream_k import StreamK
from tcgemm.emulate.terms import Terms
from tcgemm.operands.integers import BinaryTensor, Int4Tensor
from tcgemm.operands.packed import PackedWeight
from tcgemm.operands.sparse import SparseTensor24
from tcgemm.ops.explanation import explain
from tcgemm.ops.options import documented, read
from tcgemm.typing import AddOptions

GPU_OF = {80: "Ampere", 86: "Ampere", 89: "Ada", 90: "Hopper"}


class MmOptions(AddOptions, total=False):
    """The keyword arguments of mm without amax, for type checkers."""

    c: Tensor | None
    kernel: str | None
    device: str
    before_activation: bool


@overload
def mm(
    a: Tensor,
    b: Tensor | PackedWeight,
    *,
    amax: Literal[False] = ...,
    **options: Unpack[MmOptions],
) -> Tensor: ...
@overload
def mm(
    a: Tensor,
    b: Tensor | PackedWeight,
    *,
    amax: Literal[True],
    **options: Unpack[MmOptions],
) -> tuple[Tensor, Tensor]: ...
@documented(AddOptions, "emulate.mm")
def mm(
    a: Tensor,
    b: Tensor | PackedWeight,
    *,
    c: Tensor | None = None,
    kernel: str | None = None,
    device: str = "H200",
    before_activation: bool = False,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Computes the bits of tcgemm.mm(a, b, ...) on a GPU, on the CPU.

    Example:
        >>> a, b = torch.randn(64, 256).half(), torch.randn(256, 32).half()
        >>> result = tcgemm.emulate.mm(a, b, out_dtype=torch.float32, device="H200")
        >>> (result - a.double() @ b.double()).abs().max() < 1e-3
        tensor(True)

    The plan comes from `tcgemm.explain` for the same arguments, or for a named kernel. The
    sums have the order of this kernel: its instructions in ascending k, promoted where it promotes,
    and the sums of slices of k added where the plan has slices.

    Arguments:
        a: (M, K), or (B, M, K). A SparseTensor24 is multiplied as the sparse kernels do, and an
            Int4Tensor as its elements, whose sums are exact.
        b: (K, N), or (B, K, N); or the .t() of a PackedWeight, which the kernels decode.
        options: as for tcgemm.addmm.
        activation: None or "relu". The others are not reproducible on a CPU.
        out: The tensor that the result is copied to. Its strides may change the plan.
        kernel: a part of a kernel's name: "sm90a_bf16_f32_128x256", as for tcgemm.explain.
        device: a GPU of tcgemm.info.devices(): "H200".
        before_activation: True returns the argument of the activation, in the accumulator's dtype.

    Returns:
        (M, N) or (B, M, N), of out_dtype, on the CPU; with amax=True the pair (out, amax). NaN has
            the bits 0x7FFFFFFF, 0x7FFF or 0x7F; a NaN of float64 has the CPU's bits.

    Raises:
        NotImplementedError: The activation needs the GPU's own functions, or b is a prepared
            weight.
        ValueError: a or b has more than three dimensions, or only one.
        TypeError, RuntimeError: what tcgemm.matmul raises for these arguments.
        MemoryError: Copies of the operands do not fit.
        ImportError: The library of the emulator is not there.
    """
    if not isinstance(device, str):
        raise TypeError(f'device is {device!r}, but emulate.mm needs the name of a GPU: "H200".')
    bias, residual, out, epilogue, scales, amax = read("emulate.mm", options)
    plan = explain(a, b, c=c, device=device, kernel=kernel, **options)
    activation, out_dtype = epilogue.activation, epilogue.out_dtype
    scale_a, scale_b, zero_a, zero_b, scale_out = scales
    _check(a, b, activation, before_activation)
    weight = None
    if isinstance(b, PackedWeight):
        weight, b = b, packed.in_16_bits(b, a.dtype).t()
    given_a, given_b = a, b
    a, b = (x.to_int8() if isinstance(x, Int4Tensor) else x for x in (a, b))
    a, b = (x.detach().cpu() for x in (a, b))
    if epilogue.precision == "medium" and any(isinstance(x, SparseTensor24) for x in (a, b)):
        a, b, out_dtype = a.to(torch.bfloat16), b.to(torch.bfloat16), out_dtype or torch.float32
    out_dtype = out_dtype or dtypes.result(a.dtype)
    shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    if plan.config_index is None:  # nothing is launched
        empty = _stored(torch.empty(shape, dtype=out_dtype, device="cpu"), out)
        return (empty, torch.zeros((), device="cpu")) if amax else empty
    row_kernel = sums.Kernel(
        info.catalog()[plan.config_index],
        architecture(device),
        bool(plan.swap_ab),
        plan.slices or 1,
        StreamK.of(plan),
    )
    row = row_kernel.row
    of_blocks, of_rows = (None, None), (scale_a, scale_b)
    if row["block_scaled"]:
        of_blocks, of_rows = of_rows, of_blocks
    if weight is not None and row["gemv"]:
        values = packed.gemv_sums(row_kernel, a, weight)
    elif row["accumulator"] == "s32":
        values = sums.of_integers(a, b, zero_a, zero_b)
    elif row["mainloop"] == "tf32x2":
        values = tf32x2.product(row_kernel, a, b, tf32x2.is_merged(plan, a))
    elif row["terms"] > 1:
        passes = split_product.passes_of(plan, given_a, given_b)
        values = split_product.of_terms(row_kernel, passes, a, b)
    else:
        values = sums.of_floats(row_kernel, a, b, *of_blocks)
    terms = Terms(
        *of_rows,
        c=c,
        beta=epilogue.beta,
        bias=bias,
        residual=residual,
        alpha=epilogue.alpha,
        relu=activation == "relu",
    )
    if before_activation:
        terms = terms.before_activation()
    if out_dtype is torch.int32:
        return _stored(terms.of_integers(values), out)
    # A kernel that stores its result by columns multiplies by the scales in the order of the call.
    in_its_order = row_kernel.swap_ab and plan.store_path != "tma_columns"
    values = terms.of_floats(rounding.from_sums(values), in_its_order)
    if before_activation:
        return _stored(values, out)
    largest = rounding.to(values, torch.float32).abs().max() if amax else None
    if scale_out is not None:
        values = values * scale_out.cpu()
    result = _stored(rounding.to(values, out_dtype), out)
    return result if largest is None else (result, largest)


def _check(
    a: Tensor, b: Tensor | PackedWeight, activation: str | None, before_activation: bool
) -> None:
    """What explain accepts and mm does not."""
    for name, operand in (("a", a), ("b", b)):
        if operand.device.type == "meta":
            raise ValueError(
                f"{name} is on meta, so it has no values; pass a tensor of another device."
            )
        if isinstance(operand, PackedWeight):
            continue
        if not isinstance(operand, torch.Tensor):  # a Prepared
            raise NotImplementedError(
                f"{name} is a prepared weight, which emulate.mm does not read; pass the weight "
                "itself, whose plan may be another one."
            )
        if isinstance(operand, BinaryTensor):
            raise NotImplementedError(
                f"{name} is a BinaryTensor, whose products count exactly on every GPU; "
                "tcgemm.binary_mm gives them on the CPU."
            )
        if operand.dim() not in (2, 3):
            raise ValueError(
                f"{name} has the shape {tuple(operand.shape)}, but emulate.mm multiplies matrices "
                f"or equal batches of them; pass {name}.reshape(...) of two or three dimensions."
            )
    if activation not in (None, "relu") and not before_activation:
        raise NotImplementedError(
            f"{activation} is computed by functions of the GPU (tanh.approx, ex2.approx) that a "
            "CPU does not reproduce; before_activation=True gives its argument."
        )


def _stored(result: Tensor, out: Tensor | None) -> Tensor:
    return result if out is None else out.copy_(result)


def architecture(device: str) -> str:
    """The generation of a GPU of tcgemm.info.devices(): "Hopper" of the H200."""
    gpu = next(row for row in info.devices() if row["name"].lower() == device.lower())
    return GPU_OF[gpu["compute_capability"]]
