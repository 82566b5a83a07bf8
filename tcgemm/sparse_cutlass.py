"""Conversion to and from torch's CUTLASS format of 2:4 sparse matrices.

The format is the pair (packed, meta) that SparseSemiStructuredTensorCUTLASS holds and
torch.sparse._semi_structured_conversions computes.

packed equals our values. meta has four bits for each group. For two kept of four they are two
positions of two bits, as in our metadata. For one of two, the pattern of float32, the group counts
as a pair of 16-bit halves: 0b0100 is the first, 0b1110 the second. Integers of 16 bits (int8: 32
bits) hold these codes. They are stored in the order in which a warp of Ampere's tensor cores reads
them:

    tile of 32 rows (int8: 16), two columns c of integers  r = 8 q + g,  q < 4 (int8: q < 2)
    place = [c / 2][tile][g][q / 2][c % 2][q % 2]          two integers fill a register of a lane

Groups with fewer than two elements that are not zero have different codes: torch keeps places
(2, 3) of an empty group and (0, 2) of a group with its first element alone, where tcgemm.compress24
keeps the first of the zeros. Both are valid, and a conversion keeps them.
"""

from __future__ import annotations

import torch

from tcgemm.operands.sparse.positions import pack_positions
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.ops.arguments import wrong_type

# dtype -> (integer type of meta, elements of a row of w in one integer)
_INTEGERS = {
    torch.float16: (torch.int16, 16),
    torch.bfloat16: (torch.int16, 16),
    torch.float32: (torch.int16, 8),
    torch.int8: (torch.int32, 32),
}


def to_cutlass(w: SparseTensor24) -> tuple[torch.Tensor, torch.Tensor]:
    """Converts a SparseTensor24 (M, K) to the tensors (packed, meta) of torch's CUTLASS format.

    Example:
        >>> from tcgemm.sparse_cutlass import from_cutlass, to_cutlass
        >>> w = tcgemm.compress24(torch.randn(64, 128).half(), prune=True)
        >>> packed, meta = to_cutlass(w)
        >>> torch.equal(from_cutlass(packed, meta).to_dense(), w.to_dense())
        True

    Arguments:
        w (SparseTensor24): no transpose. The table has the dtypes, of what M and K must be
            multiples, and the result::

                w               M     K     meta
                float16         32    32    int16 (M, K/16)
                bfloat16        32    32    int16 (M, K/16)
                float32, 1:2    32    16    int16 (M, K/8)
                int8            16    64    int32 (M, K/32)

    Returns:
        (packed, meta). packed (M, K/2) shares the memory of w.values.

    Raises:
        RuntimeError: w is something else, or its sizes are not such multiples.
    """
    if not isinstance(w, SparseTensor24) or w.transposed:
        raise RuntimeError(
            "tcgemm.sparse_cutlass: w must be a SparseTensor24 that is no transpose, but is "
            f"{'the .t() of one' if isinstance(w, SparseTensor24) else type(w).__name__}; pass "
            "what tcgemm.compress24 makes."
        )
    rows, columns = w.shape
    integer, _elements = _check("w", w.dtype, rows, columns)
    metadata = w.metadata
    if w.dtype is torch.float32:
        if w.pattern != "1:2":
            raise RuntimeError(
                f"tcgemm.sparse_cutlass: w is torch.float32 of pattern '{w.pattern}', but CUTLASS "
                "has 1:2 of it; compress it with pattern='1:2', or convert it."
            )
        metadata = _halves(metadata)
    integers = metadata.view(integer)
    meta = torch.empty_like(integers).view(-1)
    rows, count = integers.shape
    meta[_places(rows, count, integer, integers.device)] = integers.reshape(-1)
    return w.values, meta.view(integers.shape)


def from_cutlass(packed: torch.Tensor, meta: torch.Tensor) -> SparseTensor24:
    """Converts the tensors (packed, meta) of torch's CUTLASS format to a SparseTensor24 (M, K).

    Example:
        >>> from tcgemm.sparse_cutlass import from_cutlass, to_cutlass
        >>> w = tcgemm.compress24(torch.randn(64, 128).half(), prune=True)
        >>> from_cutlass(*to_cutlass(w)).shape
        torch.Size([64, 128])

    Arguments:
        packed (Tensor): (M, K/2), the kept values.
        meta (Tensor): the codes of their positions. It may have any shape, since only the order in
            memory counts.

    Raises:
        TypeError: packed or meta is no tensor.
        RuntimeError: their dtypes or sizes do not belong together.
    """
    for name, tensor in (("packed", packed), ("meta", meta)):
        if not isinstance(tensor, torch.Tensor):
            raise wrong_type("sparse_cutlass", name, tensor)
    if packed.dim() != 2:
        raise RuntimeError(
            "tcgemm.sparse_cutlass: packed must be a matrix (M, K/2), but has shape "
            f"{tuple(packed.shape)}; pass the two of one tensor."
        )
    rows, columns = packed.shape[0], 2 * packed.shape[1]
    integer, elements = _check("packed", packed.dtype, rows, columns)
    if meta.dtype is not integer or meta.numel() != rows * columns // elements:
        raise RuntimeError(
            f"tcgemm.sparse_cutlass: meta of {rows} x {columns} elements of {packed.dtype} is "
            f"{integer} with {rows * columns // elements} elements, but came {meta.dtype} of shape "
            f"{tuple(meta.shape)}; pass the two of one tensor."
        )
    count = columns // elements
    places = _places(rows, count, integer, meta.device)
    metadata = meta.reshape(-1)[places].view(rows, count).view(torch.uint8)
    if packed.dtype is torch.float32:
        metadata = _positions(metadata)
    return SparseTensor24.from_parts(packed, metadata, columns)


def _check(name: str, dtype: torch.dtype, rows: int, columns: int) -> tuple[torch.dtype, int]:
    if dtype not in _INTEGERS:
        names = ", ".join(str(dtype) for dtype in _INTEGERS)
        raise RuntimeError(
            f"tcgemm.sparse_cutlass: {name} is {dtype}, but CUTLASS's format is of {names}; "
            "convert it."
        )
    integer, elements = _INTEGERS[dtype]
    if rows % _tile(integer) or columns % (2 * elements):
        raise RuntimeError(
            f"tcgemm.sparse_cutlass: {name} stands for {rows} x {columns} elements of {dtype}, but "
            f"CUTLASS's format has multiples of {_tile(integer)} x {2 * elements}; fill it up with "
            "zeros before it is compressed."
        )
    return integer, elements


def _tile(integer: torch.dtype) -> int:
    return 64 // integer.itemsize


def _places(rows: int, columns: int, integer: torch.dtype, device: torch.device) -> torch.Tensor:
    """The place in memory of the integer of each row and column."""
    row = torch.arange(rows, device=device)[:, None]
    column = torch.arange(columns, device=device)
    tile = _tile(integer)
    q = row % tile // 8
    lane = row // tile * tile + row % 8 * (tile // 8) + q // 2 * 2 + column % 2
    return (column // 2 * 2 * rows + 2 * lane + q % 2).reshape(-1)


def _halves(metadata: torch.Tensor) -> torch.Tensor:
    """Two bits a position of one of two -> four bits of its two halves."""
    codes = torch.stack([(metadata >> shift) & 1 for shift in (0, 2, 4, 6)], -1)
    nibbles = 0x4 + codes * 0xA
    return (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).flatten(1).to(torch.uint8)


def _positions(halves: torch.Tensor) -> torch.Tensor:
    """The inverse of _halves: the second bit of four is the position."""
    return pack_positions(torch.stack([(halves >> 1) & 1, (halves >> 5) & 1], -1).flatten(1))
