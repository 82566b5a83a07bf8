"""The kernels of this build by their names, problems from the sizes of their tiles, and a launch of
one kernel by itself.
"""

import re
from typing import NamedTuple

import pytest
import torch

from tcgemm import info
from tcgemm.ops import query

from support import cases
from support.cases import F32, FP8, INT8
from support.dtype_matrix import GemmTypes, scale_a, scale_b

TYPES = {name: dtype for dtype, name in cases.NAMES.items()} | {"tf32": F32}
TYPES |= {"s4": torch.int8, "u4": torch.uint8, "b1": torch.bool}  # of the elements, unpacked
PACKED = ("s4", "u4", "b1")
# The name of a layout in out^T = b^T a^T.
MIRRORED = {"TN": "TN", "NT": "NT", "NN": "TT", "TT": "NN"}
NAME = re.compile(
    r"(?P<arch>sm80|sm89|sm90a)_(?P<a>[a-z]+\d+(?:m3|m2)?)(?:x(?P<b>[a-z]+\d+(?:m3|m2)?))?"
    r"_(?P<accumulator>f16|f32|f64|s32)_(?P<tile>\d+x\d+x\d+)_w\d_s(?P<stages>\d+)"
    r"_(?P<layout>[tn]{2})"
    r"(?P<weight>_packed[48](?:_c\d)?)?"
    r"(?P<more>_promoted|_block_scaled|_rs|_f16x2|_bf16x3|_sparse|_pingpong|_gemv|_mma)?"
)


class Row(NamedTuple):
    """The facts in the name of a kernel."""

    name: str
    arch: str
    input: str
    types: GemmTypes
    tile: tuple[int, int, int]
    stages: int
    layout: str
    # "", "promoted", "block_scaled", "rs", "f16x2", "bf16x3", "sparse", "pingpong" or "gemv"
    more: str

    @property
    def blocks(self):
        return self.more == "block_scaled"

    @property
    def rs(self):
        return self.more == "rs"

    @property
    def split_fp32(self):
        return self.more in ("f16x2", "bf16x3")

    @property
    def tma(self):
        return self.arch == "sm90a" and self.input not in ("f32", "f64") and self.more != "gemv"

    @property
    def unrolled_only(self):
        """Its only epilogue is the one for rows that are vectors: the width is not one of boxes, or
        an FP8 mainloop leaves no registers."""
        no_boxes = self.tile[1] % 64 != 0 and not self.interleaved
        wide = self.tile[1] > 256 or no_boxes
        fp8 = self.fp8_promotes and self.tile[1] > 128
        return self.tma and (wide or fp8 or self.more == "pingpong")

    @property
    def interleaved(self):
        """A lane holds two adjacent rows of a column."""
        return self.rs or self.more == "sparse"

    @property
    def divides_k(self):
        """Its sums of slices of k can be added by another kernel."""
        narrow = self.more != "sparse" or self.tile[1] <= 64
        f64 = self.arch == "sm90a" and self.input in ("f32", "f64") and self.more != "gemv"
        return f64 or (self.tma and not self.split_fp32 and narrow)

    @property
    def sums_in_cluster(self):
        """The blocks of a cluster can add the sums of slices of k."""
        narrow = self.tile[0] <= 128 and self.tile[1] <= 192
        others = self.more not in ("rs", "pingpong") and self.types.accumulator != torch.float16
        f16_terms = self.more == "f16x2" and self.tile[1] <= 128
        return self.tma and (self.divides_k or f16_terms) and narrow and others

    @property
    def bias_only(self):
        """Its only epilogue has a bias and relu, but no other activation, c or residual."""
        return self.unrolled_only and self.blocks and self.tile[1] % 64 != 0

    @property
    def fp8_promotes(self):
        return self.tma and self.types.a in FP8 and self.more in ("promoted", "block_scaled")

    @property
    def k_major_only(self):
        return self.input == "tf32" or self.types.a in (*FP8, *INT8)

    @property
    def layouts(self):
        """The layouts of operands that this kernel reads as they are."""
        return ("TT", "NN") if self.rs else (self.layout,)


def parse(name):
    found = NAME.fullmatch(name)
    assert found, f"{name} is not how kernels are named"
    a, b = found["a"], found["b"] or found["a"]
    more = (found["more"] or "").removeprefix("_")
    if more in ("f16x2", "bf16x3") or a == "f32":
        types = GemmTypes(F32, F32, F32, "highest")
    else:
        precision = "high" if a == "tf32" else None
        if TYPES[a] in FP8 and more in ("", "sparse", "pingpong"):
            precision = "fast"
        types = GemmTypes(TYPES[a], TYPES[b], TYPES[found["accumulator"]], precision)
    return Row(
        name,
        found["arch"],
        a,
        types,
        tuple(int(size) for size in found["tile"].split("x")),
        int(found["stages"]),
        found["layout"].upper(),
        more,
    )


def is_packed(name):
    """Are the operands of a kernel packed: int4 or bits?"""
    return NAME.fullmatch(name)["a"] in PACKED


def packed_rows():
    """Parametrised over the names of this build's kernels of packed operands."""
    marks = {"sm80": "gpu", "sm90a": "sm90"}
    found = [name for name in info.build()["kernels"] if is_packed(name)]
    return pytest.mark.parametrize(
        "name", [cases.gpu(name, mark=marks[name.split("_")[0]], id=name) for name in found]
    )


def every_row(sparse=False):
    """With dense operands, or with a sparse one. Packed operands and weights have other tests."""
    dense = [name for name in info.build()["kernels"] if "_packed" not in name]
    found = [parse(name) for name in dense if not is_packed(name)]
    return [row for row in found if (row.more == "sparse") is sparse]


def rows(wanted=lambda row: True, sparse=False):
    """Parametrised over the kernels of this build that are wanted."""
    marks = {"sm80": "gpu", "sm89": "sm89", "sm90a": "sm90"}
    found = [row for row in every_row(sparse) if wanted(row)]
    return pytest.mark.parametrize(
        "row", [cases.gpu(row, mark=marks[row.arch], id=row.name) for row in found]
    )


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
    Kind("batch_whole", lambda m, n, k, s: (m, n, 2 * k), "contiguous", (3,)),
    Kind("batch_of_one_a", lambda m, n, k, s: (m + 2, n + 8, k + 8), "padded", (4,), "a"),
    Kind("batch_of_one_b", lambda m, n, k, s: (m // 2, n + 8, k + 8), "padded", (4,), "b"),
)
# The blocks of a cluster share what they load of b. Three and five tiles down leave the last blocks
# of clusters of two and four without rows.
CLUSTERS = (
    Kind("cluster", lambda m, n, k, s: (3 * m - 16, 2 * n + 16, (s + 2) * k), "contiguous"),
    Kind("cluster_ragged", lambda m, n, k, s: (4 * m + 5, 2 * n + 13, 2 * k + 9), "odd_pitch"),
    Kind("cluster_batch", lambda m, n, k, s: (m + 1, 2 * n + 8, 2 * k), "padded", (3,)),
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
    return m, n, k + 128 if row.blocks and k <= 128 else k


def asked(row, out_strides, step=0):
    """(row, layout) of operands that this kernel reads as they are for a result of these strides.

    For a column-major result a kernel computes the transposed product, in which a and b change
    places. A kernel that transposes an operand takes either side.
    """
    layout = row.layouts[step % len(row.layouts)]
    if not out_strides.startswith("transposed") or row.rs:
        return row, layout
    types = row.types._replace(a=row.types.b, b=row.types.a)
    return row._replace(types=types), MIRRORED[layout]


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
    if not row.blocks:
        return {}
    pairs = (("1x128", "128x128"), ("128x128", "1x128"), ("1x128", "row"), ("tensor", "128x128"))
    pairs += (("128x128", "128x128"), ("1x128", "1x128"), ("128x128", ""), ("row", "1x128"))
    of_a, of_b = pairs[step % len(pairs)]
    options = {"device": "cuda", "powers": powers, "strides": strides}
    scales = {"scale_a": scale_a(of_a, m, k, **options), "scale_b": scale_b(of_b, n, k, **options)}
    return {name: scale for name, scale in scales.items() if scale is not None}


def kernel_name(row, cluster=0, slices=0, cluster_adds=False):
    """The row's kernel; `cluster` asks for so many blocks of a cluster, and `slices` for so many
    slices of k; 0 for no number. `cluster_adds`: the blocks of a cluster add the slices."""
    division = f"/{slices}" + ("c" if cluster_adds else "") if slices else ""
    return row.name + (f"@{cluster}" if cluster else "") + division


def launch(
    row, a, b, *addends, out, direct=True, cluster=0, slices=0, cluster_adds=False, **options
):
    """Runs the row, and makes sure that it is this kernel, on the operands as they are.

    `cluster` is the number of blocks of a cluster; 0: the planner's choice. `slices` is the number
    of slices of k, which another kernel or a cluster adds; 0: those of the kernel itself. Returns
    what explain says.
    """
    kernel = kernel_name(row, cluster, slices, cluster_adds)
    keywords = row.types.options | {"out_dtype": out.dtype}
    scales = {name: options[name] for name in ("scale_a", "scale_b") if name in options}
    answer = query.ask("explain", a, b, out=out, **keywords, **scales, kernel=kernel)
    text = answer["text"]
    assert answer["kernel"] == row.name
    assert cluster in (0, answer["cluster"]) and slices in (0, answer["slices"])
    assert answer["cluster_adds"] == cluster_adds
    assert not direct or ("\n  split-FP32 b " if row.split_fp32 else "nothing is copied") in text
    names = ("c", "bias", "residual")
    given = options | keywords | dict(zip(names, addends, strict=False))
    torch.ops.tcgemm.scaled_mm.out(a, b, **given, kernel_name=kernel, out=out)
    return text
