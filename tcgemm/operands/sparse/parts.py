"""The parts of a SparseTensor24, values and metadata: their shapes, and checks that they belong
together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.typing import SparsePattern

FORMAT_VERSION = 1  # the version of saved tensors
DTYPES = (torch.float16, torch.bfloat16, torch.float32, *dtypes.INT8, *dtypes.FP8)
GROUPS: dict[str, int] = {"2:4": 4, "1:2": 2}  # elements of a group, half of which are kept


def default_pattern(dtype: torch.dtype) -> SparsePattern:
    """The pattern that tensor cores multiply for this dtype."""
    return "1:2" if dtype is torch.float32 else "2:4"


def value_columns(k: int, pattern: str) -> int:
    """The number of values in a row of k elements; the last group is padded with zeros."""
    group = GROUPS[pattern]
    return (k + group - 1) // group * (group // 2)


def metadata_columns(columns: int) -> int:
    """The number of metadata bytes for a row of this many values: a byte holds four positions."""
    return (columns + 3) // 4


def tiles_size(rows: int, k: int, dtype: torch.dtype) -> int:
    """The size of the reordered metadata in bytes (MetadataTiles in csrc/core/sparse.h)."""
    block_bytes, depth = (1024, 128) if dtype.itemsize == 1 else (512, 128 // dtype.itemsize)
    return ((rows + 63) // 64 * ((k + depth - 1) // depth) + 8) * block_bytes


def check_kinds(
    values: object, metadata: object, k: object, pattern: object, transpose: object
) -> None:
    """Raises RuntimeError unless the arguments have the types that the other checks rely on."""
    tensors = {"values": values, "metadata": metadata}
    if transpose is not None:
        if not isinstance(transpose, tuple | list) or len(transpose) != 2:
            raise _wrong(
                "transpose must be a pair of values and metadata", type(transpose).__name__
            )
        tensors |= {"values of transpose": transpose[0], "metadata of transpose": transpose[1]}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise _wrong(f"{name} must be a torch.Tensor", type(tensor).__name__)
        if tensor.is_nested or tensor.layout is not torch.strided or hasattr(tensor, "metadata"):
            kind = "nested" if tensor.is_nested else tensor.layout
            kind = "SparseTensor24" if hasattr(tensor, "metadata") else kind
            raise _wrong(f"{name} must be a dense, strided tensor", kind)
        if tensor.dim() != 2:
            raise _wrong(f"{name} must have two dimensions", f"shape {tuple(tensor.shape)}")
        if reaches_past_storage(tensor):
            raise _wrong(
                f"{name} must be inside their storage", "a tensor whose storage was freed or cut"
            )
        if tensor.requires_grad:
            raise RuntimeError(
                f"tcgemm.SparseTensor24: {name} must not need a gradient, which would be lost; "
                "pass .detach() of it, and requires_grad=True for the new tensor."
            )
    if isinstance(k, bool) or not isinstance(k, int | torch.SymInt) or bool(k < 0):
        raise _wrong("k must be the number of columns of the matrix", shown(k))
    if pattern is not None and not isinstance(pattern, str):
        raise _wrong("pattern must be '2:4', '1:2' or None", shown(pattern))


def shown(value: object) -> str:
    """The value as an error shows it. The repr of a tensor without storage reads freed memory, so a
    tensor is shown by its class."""
    return type(value).__name__ if isinstance(value, torch.Tensor) else repr(value)


def reaches_past_storage(tensor: Tensor) -> bool:
    """Does the tensor have elements whose memory was freed or cut, as FSDP1 does?"""
    if type(tensor) is not torch.Tensor or tensor.numel() == 0 or tensor._is_zerotensor():
        return False
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in steps)
    return bool((last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes())


def _wrong(expected: str, came: object) -> RuntimeError:
    return RuntimeError(
        f"tcgemm.SparseTensor24: {expected}, but came {came}; pass the parts of a SparseTensor24."
    )


def check_new_values(own: Tensor, values: object) -> None:
    """Raises RuntimeError unless `values` can replace `mine`, the values of a SparseTensor24."""
    if (
        isinstance(values, torch.Tensor)
        and (values.shape, values.dtype, values.device) == (own.shape, own.dtype, own.device)
        and values.layout is torch.strided
        and not values.requires_grad
    ):
        return
    came = type(values).__name__
    if isinstance(values, torch.Tensor):
        needs = " that needs a gradient" if values.requires_grad else ""
        came = f"{values.dtype} of shape {tuple(values.shape)} on {values.device}{needs}"
    raise RuntimeError(
        f"tcgemm.SparseTensor24: values are {own.dtype} of shape {tuple(own.shape)} on "
        f"{own.device}, without a gradient, but came {came}; pass such a tensor, or make "
        "a new one with tcgemm.compress24."
    )


def check_transpose(values: Tensor, k: int, transpose: tuple[Tensor, Tensor]) -> None:
    """Raises RuntimeError unless the transpose's values are of the same dtype, device and shape."""
    other = transpose[0]
    if (other.shape[0], other.dtype, other.device) != (k, values.dtype, values.device):
        raise RuntimeError(
            f"tcgemm.SparseTensor24: the transpose of a matrix of k = {k} with values of "
            f"{values.dtype} on {values.device} has {k} rows, but came {other.dtype} of shape "
            f"{tuple(other.shape)} on {other.device}; pass the parts of the transpose."
        )


def check_parts(values: Tensor, metadata: Tensor, k: int, pattern: str) -> None:
    """Raises RuntimeError unless dtypes, shapes and devices belong to a matrix with k columns."""
    if pattern not in GROUPS:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: pattern is {pattern!r}, but there are "
            "'2:4' and, for torch.float32, '1:2'; pass one of these."
        )
    if values.dtype not in DTYPES or (pattern == "1:2" and values.dtype is not torch.float32):
        names = ", ".join(str(dtype) for dtype in DTYPES)
        raise RuntimeError(
            f"tcgemm.SparseTensor24: values are {values.dtype} of pattern {pattern!r}, but there "
            f"are {names}, and '1:2' is only for torch.float32; convert them."
        )
    columns = value_columns(k, pattern)
    shape = (values.shape[0], columns), (values.shape[0], metadata_columns(columns))
    came = tuple(values.shape), tuple(metadata.shape)
    if came != shape or metadata.dtype is not torch.uint8 or metadata.device != values.device:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: a matrix of k = {k} and pattern {pattern!r} has values of "
            f"shape {shape[0]} and metadata of uint8 and shape {shape[1]} on one device, but came "
            f"{came[0]} on {values.device}, and {metadata.dtype} and {came[1]} on "
            f"{metadata.device}; pass the values and the metadata of one tensor."
        )


def check_positions(metadata: Tensor, columns: int, pattern: str) -> None:
    """Raises RuntimeError for metadata that are not valid.

    The two positions of a group of "2:4" rise, positions of "1:2" are 0 or 1, and the bits after
    the last value are 0.
    """
    if metadata.is_meta or metadata.numel() == 0:
        return
    if pattern == "1:2":
        wrong = metadata & 0b10101010 != 0
    else:
        risen = torch.zeros(16, dtype=torch.bool, device=metadata.device)
        risen[[0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110]] = True
        low, high = ~risen[(metadata & 15).int()], ~risen[(metadata >> 4).int()]
        if columns % 4:  # a row's last byte has one pair
            high[:, -1] = False
        wrong = low | high
    if columns % 4:
        wrong[:, -1] |= metadata[:, -1] >> 2 * (columns % 4) != 0
    count = int(wrong.sum())
    if count:
        row, column = divmod(int(wrong.flatten().int().argmax()), metadata.shape[1])
        raise RuntimeError(
            f"tcgemm.SparseTensor24: {count} bytes of metadata are not valid for pattern "
            f"{pattern!r}, the first in row {row}, byte {column}; pass metadata that "
            "tcgemm.compress24 made."
        )


def check_version(version: object) -> None:
    """Raises RuntimeError unless this is the version of the format of saved tensors."""
    if not isinstance(version, int) or version != FORMAT_VERSION:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: the saved tensor has version {shown(version)} of the format, "
            f"but this tcgemm reads version {FORMAT_VERSION}; install the tcgemm that saved it."
        )


def of_saved_bytes(values: Any, transpose: Any, dtype: Any) -> tuple[Any, Any]:
    """The values of the matrix, and the parts of its transpose, of a file that has float8 values as
    uint8. RuntimeError: it has not."""
    pair = isinstance(transpose, tuple) and len(transpose) == 2
    others = [transpose[0]] if pair else []
    sound = isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype.itemsize == 1
    for tensor in (values, *others):
        sound = sound and isinstance(tensor, torch.Tensor) and tensor.dtype is torch.uint8
    if not sound:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: the saved tensor is damaged: its values are not bytes of "
            f"{dtype}; load another copy of the file."
        )
    return values.view(dtype), (others[0].view(dtype), transpose[1]) if pair else transpose
