"""The kernels of this build, problems from the sizes of their tiles, and a launch of
one kernel by itself.
"""

from functools import cached_property
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from tcgemm import info
from tcgemm.ops import query

from support import cases, reference
from support.cases import F32
from support.dtype_matrix import GemmTypes, scale_a, scale_b

TYPES = {name: dtype for dtype, name in cases.NAMES.items()} | {"tf32": F32}
SUBBYTE = ("s4", "u4", "b1")
MARKS = {"sm80": "gpu", "sm89": "sm89", "sm90a": "sm90"}
# The name of a layout in out^T = b^T a^T.
MIRRORED = {"TN": "TN", "NT": "NT", "NN": "TT", "TT": "NN"}


class Row(SimpleNamespace):
    """A row of tcgemm.info.catalog(): its keys are attributes."""

    @cached_property
    def types(self):
        """The operands of a call that the kernel serves."""
        if self.terms > 1 or self.input == "f32":
            return GemmTypes(F32, F32, F32, "highest")
        precision = "high" if self.input == "tf32" else None
        if self.input in ("e4m3", "e5m2") and not self.promoted and not self.gemv:
            precision = "fast"
        types = (TYPES[name] for name in (self.input, self.input_b, self.accumulator))
        return GemmTypes(*types, precision)

    @property
    def split_fp32(self):
        return self.mainloop == "split_fp32"

    @property
    def rs(self):
        return self.operand_source == "RS"

    @property
    def unrolled_only(self):
        """Its only epilogues are those for rows that are vectors."""
        return "rolled" not in self.epilogue_paths

    @property
    def bias_only(self):
        """Its only epilogue has a bias and relu, but no other activation, c or residual."""
        return self.unrolled_only and "fused" not in self.epilogue_paths

    @property
    def stores_columns(self):
        """It has a kernel for column-major results, and so for products with a and b swapped."""
        return "columns" in self.epilogue_paths

    @property
    def layouts(self):
        """The layouts of operands that this kernel reads as they are."""
        # The other operand of tf32x2, or the rows of a product, would be the larger one.
        return ("TT", "NN") if self.rs and self.mainloop != "tf32x2" else (self.layout,)


def built_rows():
    """The kernels of this build."""
    return [Row(**row) for row in info.catalog() if row["built"]]


def parametrized(rows):
    """(row, its name as the id) for each row, with the mark of its GPUs."""
    return [cases.gpu(row, mark=MARKS[row.arch], id=row.name) for row in rows]


def subbyte_rows():
    """Parametrised over this build's kernels of int4 and of bits."""
    rows = [row for row in built_rows() if row.input in SUBBYTE]
    return pytest.mark.parametrize("row", parametrized(rows))


def every_row(sparse=False):
    """With dense operands, or with a sparse one. int4, bits and packed weights have other tests.
    So have thin kernels, which take few sizes, and the rows for results by columns alone, which
    take no slices and no 32-bit results."""
    rows = [row for row in built_rows() if not row.weight_bits and row.input not in SUBBYTE]
    rows = [row for row in rows if row.mainloop != "thin"]
    return [row for row in rows if bool(row.sparse) is sparse and not row.columns_only]


def column_rows(condition=lambda row: True):
    """Parametrised over the wanted kernels for results by columns."""
    rows = [row for row in built_rows() if row.stores_columns and condition(row)]
    return pytest.mark.parametrize("row", parametrized(rows))


def rows(condition=lambda row: True, sparse=False):
    """Parametrised over the kernels of this build that are wanted."""
    return pytest.mark.parametrize("row", parametrized(filter(condition, every_row(sparse))))


# Problems.


class Kind(NamedTuple):
    """One problem, from the sizes of a tile and the number of stages."""

    name: str
    sizes: object  # (tile_m, tile_n, tile_k, stages) -> m, n, k
    out: str = "padded"  # strides of the result
    batch: tuple[int, ...] = ()
    shared: str = ""  # the operand that all batches share

    def __str__(self):
        return self.name


KINDS = (
    Kind("whole", lambda m, n, k, s: (2 * m, 2 * n, (s + 2) * k), "contiguous"),
    # 13 x 13 tiles are more than one wave of 132 multiprocessors.
    Kind("waves", lambda m, n, k, s: (13 * m - 5, 13 * n - 8, 2 * k), "contiguous"),
    Kind("ragged", lambda m, n, k, s: (2 * m + 1, n + 13, 2 * k + k // 2 + 3), "odd_pitch"),
    Kind("ragged_words", lambda m, n, k, s: (m + 24, n + 40, 3 * k + 8)),
    Kind("ragged_in_padding", lambda m, n, k, s: (m - 7, n - 3, k - 1)),
    Kind("column_major", lambda m, n, k, s: (m + 3, n + 5, k + 2), "transposed_padded"),
    Kind("column_major_whole", lambda m, n, k, s: (2 * m, n, 2 * k), "transposed"),
    Kind("three_tiles_down", lambda m, n, k, s: (2 * m + 17, n // 2, 2 * k)),
    Kind("deep", lambda m, n, k, s: (m // 2, n // 2, (3 * s + 1) * k + 9)),
    Kind("one_k_block", lambda m, n, k, s: (m, n, k)),
    Kind("shallow", lambda m, n, k, s: (m + 3, n + 9, 5)),
    Kind("tiny", lambda m, n, k, s: (2, 3, 2)),
    Kind("one_row", lambda m, n, k, s: (1, n + 7, k + 9)),
    Kind("one_column", lambda m, n, k, s: (m + 7, 1, k + 9)),
    Kind("batch", lambda m, n, k, s: (m + 1, n // 2 + 3, k + 7), "padded", (5,)),
    # The only tile of each matrix is an edge in both directions.
    Kind("batch_of_edges", lambda m, n, k, s: (m // 2 + 1, n // 2 + 5, 2 * k + 5), "padded", (3,)),
    Kind("batch_whole", lambda m, n, k, s: (m, n, 2 * k), "contiguous", (3,)),
    Kind("batch_of_one_a", lambda m, n, k, s: (m + 2, n + 8, k + 8), "padded", (4,), "a"),
    Kind("batch_of_one_b", lambda m, n, k, s: (m // 2, n + 8, k + 8), "padded", (4,), "b"),
)
# The CTAs of a cluster share what they load of b. Three and five tiles down leave the last CTAs
# of clusters of two and four without rows.
CLUSTERS = (
    Kind("cluster", lambda m, n, k, s: (3 * m - 16, 2 * n + 16, (s + 2) * k), "contiguous"),
    Kind("cluster_ragged", lambda m, n, k, s: (4 * m + 5, 2 * n + 13, 2 * k + 9), "odd_pitch"),
    Kind("cluster_batch", lambda m, n, k, s: (m + 1, 2 * n + 8, 2 * k), "padded", (3,)),
    Kind("cluster_of_one_edge", lambda m, n, k, s: (m // 2 + 1, n // 2 + 5, 3 * k), "padded", (3,)),
    # 5 x 14 clusters of four are more than the 30 that run at one time.
    Kind("cluster_waves", lambda m, n, k, s: (18 * m - 5, 14 * n - 8, 2 * k), "contiguous"),
)


def kind_of(kind, row):
    """The kind, with a result whose rows are vectors where the kernel stores no other."""
    if not row.unrolled_only or kind.out in ("contiguous", "padded"):
        return kind
    return kind._replace(out="contiguous" if kind.out == "transposed" else "padded")


def kind_sizes(kind, row):
    m, n, k = kind.sizes(*row.tile, row.stages)
    if row.unrolled_only:
        n = -(-n // 8) * 8
    if row.split_fp32 and row.tile[1] > 128:  # several products: as much work with less depth
        k = min(k, 60 * row.tile[2] + k % row.tile[2])
    # A scale of one block alone is one of rows, which other kernels serve.
    return m, n, k + 128 if row.block_scaled and k <= 128 else k


def row_and_layout(row, out_strides, step=0):
    """(row, layout) of operands that this kernel reads as they are for a result of these strides.

    For a column-major result a kernel computes the transposed product, in which a and b change
    places. A kernel that transposes an operand takes either side.
    """
    layout = row.layouts[step % len(row.layouts)]
    if not out_strides.startswith("transposed") or row.rs:
        return row, layout
    types = row.types._replace(a=row.types.b, b=row.types.a)
    return Row(**vars(row) | {"types": types}), MIRRORED[layout]


def operands(row, layout, m, n, k, *, batch=(), shared="", whole=False):
    """a and b in a layout, readable by TMA whatever their sizes.

    Sums of some thousand random whole numbers stay below 2^11, 2^13 and 2^24.
    """
    padded = {"contiguous": "padded", "transposed": "transposed_padded"}
    stored_a, stored_b = (padded[name] for name in cases.major_strides(layout))
    largest = 1 if row.types.accumulator == torch.float16 else 4
    options = {"device": "cuda", "largest": largest if whole and not row.types.integer else None}
    a = cases.make(stored_a, *(() if shared == "a" else batch), m, k, dtype=row.types.a, **options)
    b = cases.make(stored_b, *(() if shared == "b" else batch), k, n, dtype=row.types.b, **options)
    return a, b


def block_scales(row, m, n, k, *, step=0, powers=True, strides="contiguous"):
    """Scales for a kernel of block scales, of the kinds that `step` picks; none for others."""
    if not row.block_scaled:
        return {}
    pairs = (("1x128", "128x128"), ("128x128", "1x128"), ("1x128", "row"), ("tensor", "128x128"))
    pairs += (("128x128", "128x128"), ("1x128", "1x128"), ("128x128", ""), ("row", "1x128"))
    of_a, of_b = pairs[step % len(pairs)]
    options = {"device": "cuda", "powers": powers, "strides": strides}
    scales = {"scale_a": scale_a(of_a, m, k, **options), "scale_b": scale_b(of_b, n, k, **options)}
    return {name: scale for name, scale in scales.items() if scale is not None}


def kernel_name(row, cluster=0, slices=0, cluster_adds=False, other_orientation=False):
    """The row's kernel; `cluster` asks for so many CTAs of a cluster, or for "2x4", and `slices`
    for so many slices of k, or for "streamk"; 0 for neither. `cluster_adds`: the CTAs of a cluster
    add the slices. `other_orientation`: a and b are swapped, but not for a column-major result."""
    division = f"/{slices}" + ("c" if cluster_adds else "") if slices else ""
    orientation = "^T" if other_orientation else ""
    return row.name + (f"@{cluster}" if cluster else "") + division + orientation


def launch(row, a, b, *addends, out, direct=True, by_columns=False, **options):
    """Runs the row, and makes sure that it is this kernel, on the operands as they are.

    The options have what kernel_name takes as well. A `cluster` of 0 is the planner's choice, and
    `slices` of 0 are the kernel's own. `by_columns`: the other orientation, in which the kernel for
    results by columns must store it. Returns what explain says.
    """
    names = ("cluster", "slices", "cluster_adds", "other_orientation")
    asked = {"other_orientation": by_columns}
    asked |= {name: options.pop(name) for name in names if name in options}
    kernel = kernel_name(row, **asked)
    options |= dict(zip(("c", "bias", "residual"), addends, strict=False))
    arguments = options | row.types.options | {"out_dtype": out.dtype}
    plan = query.ask("explain", a, b, out=out, **arguments, kernel=kernel)
    text = plan["text"]
    assert plan["kernel"] == row.name
    for name in ("cluster", "slices"):
        assert asked.get(name, 0) in (0, plan[name])
    assert plan["cluster_adds"] == asked.get("cluster_adds", False)
    if by_columns:
        assert (plan["epilogue_path"], plan["store_path"]) == ("columns", "tma_columns")
        assert plan["swap_ab"] == (out.stride(-1) == 1)
    assert not direct or ("\n  split-FP32 b " if row.split_fp32 else "nothing is copied") in text
    torch.ops.tcgemm.scaled_mm.out(a, b, **arguments, kernel_name=kernel, out=out)
    return text


def check_exact(row, kind, step=0, **options):
    """The row's result of whole numbers is exact, and nothing beside it is written. `step` picks
    the layout and the block scales; the options are those of launch."""
    kind = kind_of(kind, row)
    m, n, k = kind_sizes(kind, row)
    operand_row, layout = row_and_layout(row, kind.out, step)
    shapes = {"batch": kind.batch, "shared": kind.shared}
    a, b = operands(operand_row, layout, m, n, k, whole=True, **shapes)
    scales = block_scales(row, m, n, k, step=len(kind.name) + step)
    shape = (*kind.batch, m, n)
    guarded = cases.Guarded(kind.out, shape, dtype=row.types.outs[0], device="cuda")
    launch(row, a, b, out=guarded.view, **options, **scales)
    reference.assert_guarded(guarded, reference.exact(a, b, **scales, **row.types.options))
