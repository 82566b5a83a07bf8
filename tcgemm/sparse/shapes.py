"""The geometry of 2:4 sparse matrices: group sizes, and the shapes of values and metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tcgemm.typing import SparsePattern

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
