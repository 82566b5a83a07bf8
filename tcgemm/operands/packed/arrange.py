"""The device order: the bytes of a packed weight in the order in which the kernels read them.

    header   256 bytes    the table, 16 float32; the rest is 0
    codes    [nb][kb]     blocks of 128 features x 64 k
    scales   [nb][G'][P][128] float32; P = 1, or 2 with zero points or offsets behind the scales

A block of codes has 8 units of 16 features. The element (feature, k) of a block stands as follows,
where lane = 4 g + t, feature = 16 u + 2 g + p, and k = 16 j + 8 h + 2 t + e:

    int4      [u][lane][word j] four bits: [e][h][p]     symmetric codes are stored as code + 8
    indexes   [u][lane][word j] four bits: [h][p][e]
    8 bits    [u][j // 2][lane][j % 2][h][p][e]

These are the fragments of mma.sync: a thread loads 16 bytes, and has its codes for four
instructions (8 bits: for two). docs/dev/packed-weights.md tells more.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tcgemm.operands.packed.codes import MIDDLE, float_scales, pack_nibbles, unpack_nibbles
from tcgemm.operands.packed.formats import ENTRIES
from tcgemm.operands.packed.parts import Layout, Parts
from tcgemm.operands.quant.weight import view_bytes
from tcgemm.typing import PackedFormat

FEATURES, DEPTH = 128, 64  # of a block
HEADER = 256  # bytes
_CHUNK = 2**26  # codes that are reordered at a time

# The dimensions of a block: nb, u, g, p of a feature, and kb, j (for 8 bits two), h, t, e of a k.
_SPLIT = (8, 8, 2), (4, 2, 4, 2)
_SPLIT_BYTES = (8, 8, 2), (2, 2, 2, 4, 2)
# The order of these dimensions in memory.
_ORDERS = {
    "int4": (0, 4, 1, 2, 7, 5, 8, 6, 3),
    "table4": (0, 4, 1, 2, 7, 5, 6, 3, 8),
    "8 bits": (0, 4, 1, 5, 2, 8, 6, 7, 3, 9),
}
# The format of the parts of a device order whose operator has this word.
_FORMATS: dict[str, PackedFormat] = {
    "int4": "int4",
    "table4": "table",
    "int8": "int8",
    "e4m3": "e4m3",
}


class Order(NamedTuple):
    """What the operator is given beside the bytes."""

    n: int
    weight_format: str  # "int4", "table4", "int8" or "e4m3"
    group_size: int  # 0: a whole row
    zeros: str  # "none", "points" or "offsets"

    @property
    def bits(self) -> int:
        """The bits of a code."""
        return 4 if self.weight_format.endswith("4") else 8

    @property
    def terms(self) -> int:
        """The float32 numbers of a group."""
        return 1 if self.zeros == "none" else 2

    @property
    def outside(self) -> int:
        """The code of the elements that fill up the last blocks."""
        return MIDDLE if self.weight_format == "int4" else 0

    @property
    def dims(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The dimensions of the features and of the k of a block."""
        return _SPLIT if self.bits == 4 else _SPLIT_BYTES

    @property
    def permutation(self) -> tuple[int, ...]:
        """The order of the dimensions in memory."""
        return _ORDERS[self.weight_format if self.bits == 4 else "8 bits"]

    def groups(self, k: int) -> int:
        """The groups of a row, with those that fill up the last block."""
        depth = _blocks(k, DEPTH) * DEPTH
        return math.ceil(depth / (self.group_size or max(depth, 1)))

    def sizes(self, k: int) -> tuple[int, int]:
        """The bytes of the codes, and of the scales."""
        features = _blocks(self.n, FEATURES) * FEATURES
        codes = features * _blocks(k, DEPTH) * DEPTH * self.bits // 8
        return codes, features * self.groups(k) * self.terms * torch.float32.itemsize

    def nbytes(self, k: int) -> int:
        """The size of the device order of a weight with k columns."""
        return HEADER + sum(self.sizes(k))


def order_of(parts: Parts, layout: Layout) -> Order:
    """The arguments of the operator for a packed weight."""
    zeros = "none" if parts.zero_points is None else "points"
    zeros = zeros if parts.offsets is None else "offsets"
    group_size = layout.group_size if layout.k else None
    return Order(layout.n, layout.form.operator, group_size or 0, zeros)


def _blocks(extent: int, size: int) -> int:
    return (extent + size - 1) // size


def _padded(tensor: Tensor, rows: int, columns: int, value: int) -> Tensor:
    missing = (0, columns - tensor.shape[1], 0, rows - tensor.shape[0])
    return torch.nn.functional.pad(tensor, missing, value=value)


def arranged(parts: Parts, layout: Layout) -> Tensor:
    """The device order of a packed weight: uint8, one dimension, on the device of its codes."""
    order = order_of(parts, layout)
    header = torch.zeros(HEADER, dtype=torch.uint8, device=parts.codes.device)
    if parts.table is not None:
        table = parts.table.contiguous().view(torch.uint8)
        header = torch.cat([table, header[table.numel() :]])
    step = max(1, _CHUNK // max(layout.k * FEATURES, 1)) * FEATURES
    blocks = [
        _arranged_codes(parts.codes[start : start + step], layout, order)
        for start in range(0, layout.n, step)
    ]
    return torch.cat([header, *blocks, _arranged_scales(parts, layout, order)])


def _arranged_codes(codes: Tensor, layout: Layout, order: Order) -> Tensor:
    n, k = codes.shape[0], layout.k
    if order.bits == 4:
        codes = unpack_nibbles(codes, k)
        codes = codes if order.weight_format != "int4" or order.zeros != "none" else codes ^ MIDDLE
    else:
        codes = view_bytes(codes.contiguous(), torch.uint8)
    nb, kb = _blocks(n, FEATURES), _blocks(k, DEPTH)
    codes = _padded(codes, nb * FEATURES, kb * DEPTH, order.outside)
    features, depth = order.dims
    codes = codes.view(nb, *features, kb, *depth).permute(order.permutation)
    codes = codes.reshape(-1)
    return pack_nibbles(codes) if order.bits == 4 else codes


def _arranged_scales(parts: Parts, layout: Layout, order: Order) -> Tensor:
    terms = [float_scales(parts, layout)]
    if parts.zero_points is not None:
        terms.append(parts.zero_points.float())
    if parts.offsets is not None:
        terms.append(parts.offsets.float())
    nb, groups = _blocks(layout.n, FEATURES), order.groups(layout.k)
    padded = [_padded(term, nb * FEATURES, groups, 0) for term in terms]
    stacked = torch.stack([term.view(nb, FEATURES, groups) for term in padded])
    return stacked.permute(1, 3, 0, 2).reshape(-1).view(torch.uint8)


def codes_of(packed: Tensor, order: Order, k: int) -> Tensor:
    """The codes of a weight with k columns, as they are saved, with float8 as uint8."""
    n, nb, kb = order.n, _blocks(order.n, FEATURES), _blocks(k, DEPTH)
    features, depth = order.dims
    shape = (nb, *features, kb, *depth)
    permutation = order.permutation
    size, _ = order.sizes(k)
    codes = packed[HEADER : HEADER + size]
    if order.bits == 4:
        codes = unpack_nibbles(codes, codes.numel() * 2)
    inverse = sorted(range(len(shape)), key=permutation.__getitem__)
    codes = codes.view([shape[dim] for dim in permutation]).permute(inverse)
    codes = codes.reshape(nb * FEATURES, kb * DEPTH)[:n, :k]
    if order.bits == 4:
        symmetric = order.weight_format == "int4" and order.zeros == "none"
        return pack_nibbles(codes ^ MIDDLE if symmetric else codes)
    codes = codes.contiguous()
    return codes.view(torch.int8) if order.weight_format == "int8" else codes


def parts_of(packed: Tensor, order: Order, k: int) -> tuple[Parts, Layout]:
    """The inverse of arranged: the parts of a weight with k columns, with scales in float32.

    A scale that all groups share is in the scales, and every table has the format "table".
    """
    layout = Layout(_FORMATS[order.weight_format], order.n, k, order.group_size or None)
    size, _ = order.sizes(k)
    features = _blocks(order.n, FEATURES) * FEATURES
    scales = packed[HEADER + size :].view(torch.float32)
    terms = scales.view(features // FEATURES, order.groups(k), order.terms, FEATURES)
    terms = terms.permute(2, 0, 3, 1).reshape(order.terms, features, order.groups(k))
    terms = terms[:, : layout.n, : layout.groups]
    table = None
    if order.weight_format == "table4":
        table = packed[: ENTRIES * 4].view(torch.float32)
    parts = Parts(
        codes_of(packed, order, k),
        terms[0],
        terms[1].to(torch.uint8) if order.zeros == "points" else None,
        terms[1] if order.zeros == "offsets" else None,
        table,
    )
    return parts, layout
