"""The bits of one tensor-core instruction, or of a chain of them along k."""

from __future__ import annotations

import ctypes
import difflib
from typing import TYPE_CHECKING, NamedTuple

import torch

from tcgemm import dtypes
from tcgemm.emulate import lab_library, table
from tcgemm.operands.sparse.parts import metadata_columns
from tcgemm.operands.sparse.positions import unpack_positions

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.emulate.table import Instruction

# tf32 operands are float32 tensors, whose low 13 bits the tensor cores do not read. Elements of 4
# bits and 1 bit have a byte each.
TORCH = {name: dtype for dtype, name in dtypes.NAMES.items()} | {"tf32": torch.float32}
TORCH |= {"s4": torch.int8, "u4": torch.uint8, "b1": torch.bool}


class Promotion(NamedTuple):
    """Chains of `stored` elements of a, whose sums FP32 additions promote."""

    stored: int
    # float32 (..., M, chains) and (..., N, chains): a sum is multiplied by the product of both.
    factors_a: Tensor | None = None
    factors_b: Tensor | None = None

    def part(self, chains: slice) -> Promotion:
        """The promotion of some of the chains."""
        factors = (None if x is None else x[..., chains] for x in self[1:])
        return Promotion(self.stored, *factors)


class _Mma(ctypes.Structure):
    """tcgemm::emulate::Mma of csrc/emulate/mma.h."""

    _fields_ = [
        ("arithmetic", table.Arithmetic),
        *((name, ctypes.c_uint8) for name in ("input_a", "input_b", "accumulator")),
        *((name, ctypes.c_int32) for name in ("step", "saturates", "threads")),
        *((name, ctypes.c_int64) for name in ("batch", "m", "n", "k", "k_b")),
        *((name, ctypes.c_void_p) for name in ("a", "b", "c", "d", "columns")),
        ("promoted", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("factors_a", "factors_b")),
    ]


def mma(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    instruction: str,
    arch: str = "Hopper",
    metadata: Tensor | None = None,
    satfinite: bool = False,
) -> Tensor:
    """Computes a @ b + c with the bits of a tensor-core instruction.

    Example:
        >>> a = torch.tensor([[1.0, 2.0**-24] + 14 * [0.0]], dtype=torch.float16)
        >>> b = torch.ones(16, 1, dtype=torch.float16)
        >>> row = "mma.m16n8k16.f32.f16.f16"
        >>> (tcgemm.emulate.mma(a, b, instruction=row) - 1).item()  # the sum is cut to 24 bits
        0.0

    Each element of the result is a sum along k in the instruction's order. If K is a multiple of
    the instruction's k, the sum comes from a chain of instructions in ascending k, each of which
    takes the result of the one before as its accumulator. M and N may have any size, because an
    element of a result does not depend on the others.

    Arguments:
        a: (..., M, K), of the instruction's type. Of a sparse instruction, the stored elements
            (..., M, K / 2). float32 stands for tf32, int8 from -8 to 7 for s4, uint8 up to 15 for
            u4, bool for b1.
        b: (..., K, N), with the leading sizes of a.
        c: The accumulator (..., M, N): float32, float16, float64 or int32. None is zero.
        instruction: The name of a row of `instructions()`: "wgmma.m64nNk16.f32.f16.f16".
        arch: The generation of GPUs whose bits these are.
        metadata: Of a sparse instruction: uint8 (..., M, K / 8), two bits for each stored element,
            its position in the group of 4, or of 2 for tf32; the first in the lowest bits
            (as in SparseTensor24.metadata). Of s4 and u4, (..., M, K / 16) and two bits for each
            stored pair of elements, its position in the group of four pairs.
        satfinite: Integers: each instruction clamps its result to int32 instead of wrapping.

    Returns:
        (..., M, N) of the accumulator's dtype, on the device of a. The computation is on the CPU.

    Raises:
        ValueError: The architecture lacks the instruction, or a shape, the metadata or a value of 4
            bits does not fit.
        TypeError: A dtype does not fit.
        MemoryError: Copies of the operands do not fit.
        ImportError: The library of the emulator is not there.

    Note:
        NaN results have the bits 0x7FFFFFFF (float16: 0x7FFF), as on the GPUs. Those of float64
        have the CPU's bits.
    """
    row = _row(instruction, arch)
    _check_operands(row, a, b, c, satfinite)
    columns = columns_of(row, a, metadata)
    return multiply(row, a, b, c, columns=columns, satfinite=satfinite)


def _row(name: str, arch: str) -> Instruction:
    arch = table.check_arch(arch)
    rows = table.rows()
    if (arch, name) in rows:
        return rows[arch, name][0]
    gpus = [gpu for gpu, instruction in rows if instruction == name]
    if gpus:
        raise ValueError(f"{arch} has no instruction {name}; these have it: {', '.join(gpus)}.")
    names = [instruction for gpu, instruction in rows if gpu == arch]
    close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.0)
    raise ValueError(
        f"instruction is {name!r}, but {arch} has none of that name; close ones are "
        f"{', '.join(close)}, and tcgemm.emulate.instructions({arch!r}) lists all."
    )


def _check_dtype(name: str, tensor: Tensor, expected: str, instruction: Instruction) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, but it must be a tensor.")
    if tensor.is_meta:
        raise ValueError(
            f"{name} is on meta, so it has no values; pass a tensor of another device."
        )
    if tensor.dtype is not TORCH[expected]:
        raise TypeError(
            f"{name} has dtype {tensor.dtype}, but {instruction.name} takes {TORCH[expected]}; "
            f"convert it with {name}.to({TORCH[expected]})."
        )
    if expected not in table.RANGES:
        return
    low, high = table.RANGES[expected]
    if bool(((tensor < low) | (tensor > high)).any()):
        raise ValueError(
            f"{name} has values from {int(tensor.min())} to {int(tensor.max())}, but {expected} "
            f"has {low} to {high}; clamp it with {name}.clamp({low}, {high})."
        )


def _check_operands(
    row: Instruction, a: Tensor, b: Tensor, c: Tensor | None, satfinite: bool
) -> None:
    _check_dtype("a", a, row.input, row)
    _check_dtype("b", b, row.input_b, row)
    for name, operand in (("a", a), ("b", b)):
        if operand.dim() < 2:
            raise ValueError(
                f"{name} has the shape {tuple(operand.shape)}, but it must have at least two "
                "dimensions: (..., M, K) for a, (..., K, N) for b."
            )
    k = a.shape[-1] * (2 if row.is_sparse else 1)
    if k % row.shape[2] != 0:
        raise ValueError(
            f"a has {a.shape[-1]} columns, but {row.name} reads {row.stored} at a time: fill a "
            "with zero columns, and b with zero rows."
        )
    if b.shape != (*a.shape[:-2], k, b.shape[-1]):
        raise ValueError(
            f"b has the shape {tuple(b.shape)}, but a of shape {tuple(a.shape)} needs "
            f"({', '.join(map(str, (*a.shape[:-2], k)))}, N)."
        )
    if c is not None:
        _check_dtype("c", c, row.accumulator, row)
        shape = (*a.shape[:-1], b.shape[-1])
        if c.shape != shape:
            raise ValueError(f"c has the shape {tuple(c.shape)}, but the result has {shape}.")
    if satfinite and (row.accumulator != "s32" or row.input == "b1"):
        raise ValueError(f"satfinite is for integers; {row.name} has no such form.")


def columns_of(row: Instruction, a: Tensor, metadata: Tensor | None) -> Tensor | None:
    """The row of b that each stored element is multiplied by: int32, as large as a."""
    if not row.is_sparse:
        if metadata is not None:
            raise ValueError(f"metadata is for sparse instructions, but {row.name} is dense.")
        return None
    stored, group, pair = a.shape[-1], row.group, row.pair
    shape = (*a.shape[:-1], metadata_columns(stored // pair))
    if metadata is None or metadata.dtype is not torch.uint8 or metadata.shape != shape:
        came = "None" if metadata is None else f"{metadata.dtype} {tuple(metadata.shape)}"
        raise ValueError(
            f"metadata is {came}, but {row.name} needs torch.uint8 {shape}: two bits for each "
            f"stored {'element' if pair == 1 else 'pair of elements'} of a."
        )
    positions = unpack_positions(metadata.cpu(), stored // pair).int()
    half = group // 2
    by_group = positions.unflatten(-1, (-1, half))
    if bool((positions >= group).any()) or bool((by_group.diff(dim=-1) <= 0).any()):
        raise ValueError(
            f"metadata has positions that are not ascending within a group of {group}: tensor "
            "cores do not define the result of such an operand."
        )
    index = (
        torch.arange(stored // pair, dtype=torch.int32, device="cpu") // half * group + positions
    )
    offsets = torch.arange(pair, dtype=torch.int32, device="cpu")
    return (pair * index.unsqueeze(-1) + offsets).flatten(-2)


def multiply(
    instruction: Instruction,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    columns: Tensor | None = None,
    satfinite: bool = False,
    promotion: Promotion | None = None,
    arithmetic: table.Arithmetic | None = None,
) -> Tensor:
    """The product of checked operands by the library, with any arithmetic."""
    row = table.rows()[instruction.arch, instruction.name][1]
    shape = (*a.shape[:-1], b.shape[-1])
    result = torch.empty(shape, dtype=TORCH[instruction.accumulator], device="cpu")
    tensors: dict[str, Tensor | None] = {"a": a, "b": b.mT, "c": c, "columns": columns}
    if promotion is not None:
        tensors |= {"factors_a": promotion.factors_a, "factors_b": promotion.factors_b}
    read = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in tensors.items()
        if tensor is not None
    }
    call = _Mma(
        arithmetic=arithmetic or row.arithmetic,
        input_a=row.type_a,
        input_b=row.type_b,
        accumulator=row.type_c,
        step=instruction.stored,
        saturates=satfinite,
        threads=torch.get_num_threads(),
        batch=a.shape[:-2].numel(),
        m=shape[-2],
        n=shape[-1],
        k=a.shape[-1],
        k_b=b.shape[-2],
        d=result.data_ptr(),
        promoted=0 if promotion is None else promotion.stored,
        **{name: tensor.data_ptr() for name, tensor in read.items()},
    )
    if lab_library.function("mma", _Mma)(ctypes.byref(call)):
        raise MemoryError(
            f"The emulator has no memory for operands of shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}; emulate some rows of a and columns of b: their bits are the same."
        )
    return result.to(a.device)
