"""PackedWeight: a weight of 4 or 8 bits an element, for products with 16-bit activations.

    Parts, Layout          the tensors that are saved, and the numbers that belong to them
    arranged()             the same bytes in the order of the kernels, made once and kept
    dequantize()           the matrix that they stand for

A PackedWeight is no tensor. product.py multiplies it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tcgemm import dtypes
from tcgemm.operands.packed import arrange
from tcgemm.operands.packed.codes import dequantized
from tcgemm.operands.packed.formats import FLOATS, format_of, table_of
from tcgemm.operands.packed.parts import Layout, Parts, bytes_of, check_parts, of_bytes
from tcgemm.operands.packed.stored import Stored
from tcgemm.ops.epilogue import Epilogue
from tcgemm.ops.operands import Operand, TensorOperand
from tcgemm.typing import PackedFormat

_NAME = "tcgemm.PackedWeight"
_SHOWN = (*FLOATS, torch.float64)  # what dequantize() may have; double() of a layer asks for it
FORMAT_VERSION = 1  # of saved objects


def _part(name: str, text: str) -> Any:
    """A property for one of the tensors. A tensor that replaces it is checked."""

    def get(self: PackedWeight) -> Tensor | None:
        stored = self.stored
        parts = stored.parts if name == "codes" else stored.tensors
        return getattr(of_bytes(parts, stored.layout.form), name)

    def replace(self: PackedWeight, tensor: Tensor | None) -> None:
        stored = self.stored
        parts = of_bytes(stored.parts, stored.layout.form)._replace(**{name: tensor})
        check_parts(_NAME, parts, stored.layout)
        stored.replace(parts.map(bytes_of))

    return property(get, replace, doc=text)


class PackedWeight(Operand):
    """A weight (N, K) of 4 or 8 bits an element; tcgemm.pack_weight makes it.

    Example:
        >>> w = tcgemm.pack_weight(torch.randn(48, 128).bfloat16(), "nf4", 64)
        >>> x = torch.randn(10, 128).bfloat16()
        >>> tcgemm.linear(x, w).shape, tcgemm.mm(x, w.t()).shape
        (torch.Size([10, 48]), torch.Size([10, 48]))
        >>> w.dequantize().shape, w.codes.nbytes
        (torch.Size([48, 128]), 3072)

    It takes the place of the weight in tcgemm.linear, and its .t() the place of b in mm, matmul and
    addmm, of tcgemm and of torch, and in x @ b. The activations are float16 or bfloat16. The result
    is the product with dequantize(x.dtype).

    The weight is (code - zero_point) * scale, or code * scale + offset, or table[code] * scale. It
    is computed in float32, with a rounding after each operation, and then rounded once. x and the
    addends of the epilogue have gradients, and the weight has none.

    Attributes:
        codes (Tensor): 4 bits: uint8 (N, ceil(K/2)), where byte k // 2 of a row has the element k:
            in its low four bits if k is even, and else in its high ones. 8 bits: int8 or
            float8_e4m3fn (N, K). A code of "int4" is in two's complement, or from 0 to 15 with zero
            points or offsets.
        scales (Tensor): (N, G) of float16, bfloat16 or float32; "mxfp4": float8_e8m0fnu; "nvfp4":
            float8_e4m3fn. G is K / group_size, or 1.
        zero_points (Tensor): uint8 (N, G) from 0 to 16, or None; "int4" only.
        offsets (Tensor): (N, G) of the dtype of scales, or None; "int4" only, and then the weight
            is (code - 8) * scale + offset.
        table (Tensor): float32 (16,), the values of the codes of "nf4", "fp4", "mxfp4", "nvfp4" and
            "table"; else None.
        global_scale (Tensor): float32 (), which multiplies all scales of "nvfp4"; else None.
        format (str): see tcgemm.pack_weight.
        group_size (int): the elements along K that share a scale; None: a whole row.
        dtype (torch.dtype): the dtype of dequantize() without an argument.

    The tensors can be replaced and changed in place. Products use the new elements. A change
    through `codes.data`, and of an inference tensor, is not noticed.

    Kernels read another order of the same bytes, which takes as much memory again. The first
    product makes it, and it is kept until a tensor changes: see arranged. release_codes frees the
    codes that are in both.

    copy.deepcopy, pickle and torch.save copy the tensors above, and torch.load reads them with
    weights_only=True.
    """

    stored: Stored
    transposed: bool

    def __init__(self, stored: Stored, transposed: bool = False) -> None:
        self.stored = stored
        self.transposed = transposed

    @staticmethod
    def from_parts(
        codes: Tensor,
        scales: Tensor,
        format: PackedFormat,
        *,
        k: int | None = None,
        group_size: int | None,
        zero_points: Tensor | None = None,
        offsets: Tensor | None = None,
        table: Tensor | None = None,
        global_scale: Tensor | None = None,
        dtype: torch.dtype | str | None = None,
    ) -> PackedWeight:
        """Makes a weight of its tensors, which are not copied.

        Example:
            >>> w = tcgemm.pack_weight(torch.randn(4, 64), "int4", 32)
            >>> tensors = {"codes": w.codes, "scales": w.scales}
            >>> again = tcgemm.PackedWeight.from_parts(**tensors, format="int4", group_size=32)
            >>> torch.equal(again.dequantize(), w.dequantize())
            True

        Arguments:
            codes, scales, zero_points, offsets, table, global_scale (Tensor): see the attributes of
                the class. A format with a code book of its own needs no table.
            format (str): see tcgemm.pack_weight.
            k (int): the number of columns; default: all that codes have.
            group_size (int): the elements along K that share a scale; None: a whole row.
            dtype (torch.dtype): the dtype of dequantize(); default: scales.dtype, or bfloat16 for
                "mxfp4" and "nvfp4".

        Raises:
            TypeError: one of them is no tensor.
            RuntimeError: a dtype, shape or device does not belong to the others.
        """
        form = format_of(_NAME, format)
        n = columns = 0
        if isinstance(codes, torch.Tensor):  # check_parts refuses what is none
            if codes.dim() != 2:
                raise RuntimeError(
                    f"{_NAME}: codes must have two dimensions, a row for each row of the weight, "
                    f"but has shape {tuple(codes.shape)}; reshape it."
                )
            n, columns = codes.shape[0], codes.shape[1] * 8 // form.bits
            table = table_of(form, codes.device) if table is None else table
        layout = Layout(format, n, columns if k is None else k, group_size)
        parts = Parts(codes, scales, zero_points, offsets, table, global_scale)
        check_parts(_NAME, parts, layout)
        dtype = dtypes.of(_NAME, "dtype", dtype)
        if dtype is None:
            dtype = scales.dtype if scales.dtype in FLOATS else torch.bfloat16
        return PackedWeight(Stored(parts.map(bytes_of), layout, dtype))

    codes: Tensor = _part("codes", "The codes.")
    scales: Tensor = _part("scales", "The scales (N, G).")
    zero_points: Tensor | None = _part("zero_points", "The zero points (N, G), or None.")
    offsets: Tensor | None = _part("offsets", "The offsets (N, G), or None.")
    table: Tensor | None = _part("table", "The code book (16,), or None.")
    global_scale: Tensor | None = _part("global_scale", "The scale of all groups, or None.")

    @property
    def format(self) -> PackedFormat:
        """The word for the kind of codes."""
        return self.stored.layout.format

    @property
    def group_size(self) -> int | None:
        """The elements along K that share a scale; None: a whole row."""
        return self.stored.layout.group_size

    @property
    def shape(self) -> torch.Size:
        """The shape of the operand whose place it takes: (N, K), or (K, N) of the transpose."""
        _, n, k, _ = self.stored.layout
        return torch.Size((k, n) if self.transposed else (n, k))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of dequantize()."""
        return self.stored.dtype

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self.stored.tensors.codes.device

    @property
    def nbytes(self) -> int:
        """The size of the tensors that are saved, in bytes."""
        return sum(tensor.nbytes for tensor in self.stored.parts.tensors().values())

    def dim(self) -> int:
        """The number of dimensions, 2."""
        return 2

    def t(self) -> PackedWeight:
        """The transpose (K, N). It shares all tensors."""
        return PackedWeight(self.stored, not self.transposed)

    def dequantize(self, dtype: torch.dtype | str | None = None) -> Tensor:
        """The matrix that the codes stand for, as a plain tensor of this dtype."""
        stored = self.stored
        dtype = dtypes.of(f"{_NAME}.dequantize", "dtype", dtype)
        with torch.no_grad():
            dense = dequantized(stored.parts, stored.layout, dtype or stored.dtype)
        return dense.t() if self.transposed else dense

    def arranged(self) -> Tensor:
        """The bytes in the order in which kernels read them: uint8, one dimension.

        Every product calls this. The first call makes the bytes, and they are kept until a tensor
        is replaced, moved or changed in place. Inside torch.compile and the capture of a CUDA graph
        they are made anew in each run unless they were kept before: call it once, or multiply once.
        """
        return self.stored.arranged()

    mend = "a tensor, such as its dequantize()"

    def described(self, name: str, a: Any, epilogue: Epilogue) -> tuple[Tensor, dict[str, Any]]:
        if not self.transposed:
            raise RuntimeError(
                f"tcgemm.{name}: b is a PackedWeight of shape {tuple(self.shape)}, which is "
                "(N, K), but b must be (K, N); pass its .t()."
            )
        if isinstance(a, TensorOperand):
            raise RuntimeError(
                f"tcgemm.{name}: a is a {type(a).__name__}, but a packed weight is multiplied by a "
                "dense tensor of torch.float16 or torch.bfloat16; pass such a tensor."
            )
        order = self.arranged()
        return order, {"packed_b": order, **self.order._asdict()}

    def release_codes(self) -> None:
        """Frees the codes, and keeps them in the order of the kernels alone.

        Example:
            >>> w = tcgemm.pack_weight(torch.randn(128, 128), "int4", 32)
            >>> codes = w.codes
            >>> w.release_codes()
            >>> torch.equal(w.codes, codes)
            True

        It saves half of the memory. Products stay the same. `codes` is made anew at each access, so
        changes of it in place are lost: assign another tensor. Copies, pickles and to() read the
        codes back.

        Raises RuntimeError inside torch.compile and the capture of a CUDA graph, and for fake
        tensors, where no order is kept.
        """
        if not self.stored.release():
            raise RuntimeError(
                f"{_NAME}.release_codes: no order of the kernels is kept inside torch.compile or "
                "the capture of a CUDA graph, nor for fake tensors; call it before."
            )

    @property
    def order(self) -> arrange.Order:
        """The arguments of the operator that belong to arranged()."""
        return arrange.order_of(self.stored.tensors, self.stored.layout)

    def to(self, *args: Any, **kwargs: Any) -> PackedWeight:
        """Moves the tensors to a device; a dtype is the dtype of dequantize() from then on.

        The arguments are as for torch.Tensor.to. Codes and scales are never converted. Returns
        this object if nothing changes.
        """
        moved = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if moved.dtype not in _SHOWN:
            raise RuntimeError(
                f"{_NAME}.to: the dtype is {moved.dtype}, but dequantize() has torch.float16, "
                "torch.bfloat16, torch.float32 or torch.float64; pass one of these, or call "
                "dequantize(dtype)."
            )
        if (moved.dtype, moved.device) == (self.dtype, self.device):
            return self
        parts = self.stored.parts.map(lambda tensor: tensor.to(moved.device))
        return PackedWeight(Stored(parts, self.stored.layout, moved.dtype), self.transposed)

    def half(self) -> PackedWeight:
        """The same as to(torch.float16)."""
        return self.to(torch.float16)

    def bfloat16(self) -> PackedWeight:
        """The same as to(torch.bfloat16)."""
        return self.to(torch.bfloat16)

    def cpu(self) -> PackedWeight:
        """The same as to("cpu")."""
        return self.to("cpu")

    def cuda(self, device: torch.device | str | int | None = None) -> PackedWeight:
        """The same as to("cuda"), or to another GPU."""
        return self.to("cuda" if device is None else device)

    def __repr__(self) -> str:
        return (
            f"PackedWeight(shape={tuple(self.shape)}, format={self.format!r}, "
            f"group_size={self.group_size}, dtype={self.dtype}, device='{self.device}', "
            f"nbytes={self.nbytes})"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedWeight:
        stored = self.stored
        parts = stored.parts.map(lambda tensor: copy.deepcopy(tensor, memo))
        return PackedWeight(Stored(parts, stored.layout, stored.dtype), self.transposed)

    def __reduce__(self) -> tuple[Callable[..., PackedWeight], tuple[Any, ...]]:
        stored = self.stored
        state = (FORMAT_VERSION, tuple(stored.parts), tuple(stored.layout), stored.dtype)
        return restored, (*state, self.transposed)


def restored(
    version: int, parts: Any, layout: Any, dtype: torch.dtype, transposed: bool
) -> PackedWeight:
    """The inverse of __reduce__, for pickle and torch.load.

    Files may be damaged or forged, so every argument is checked.
    """
    sizes = (len(Parts._fields), len(Layout._fields))
    sound = isinstance(parts, tuple) and isinstance(layout, tuple)
    sound = sound and (len(parts), len(layout)) == sizes and isinstance(transposed, bool)
    if version != FORMAT_VERSION or not sound or dtype not in _SHOWN:
        raise RuntimeError(
            f"{_NAME}: the saved weight has version {version!r} of the format, or is damaged, but "
            f"this tcgemm reads version {FORMAT_VERSION}; install the tcgemm that saved it, or "
            "load another copy of the file."
        )
    numbers = Layout(*layout)
    stored_parts = of_bytes(Parts(*parts), format_of(_NAME, numbers.format))
    check_parts(_NAME, stored_parts, numbers)
    return PackedWeight(Stored(stored_parts.map(bytes_of), numbers, dtype), transposed)
