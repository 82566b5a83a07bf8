"""The steps of the ladders: their ideas, dtypes and variants. Their kernels are in csrc/lab."""

from __future__ import annotations

from typing import NamedTuple

from tcgemm import published
from tcgemm.typing import Layout

MOST_PARAMETERS = 4


class Variant(NamedTuple):
    """A form of a step.

    Attributes:
        label (str): what it differs in: "3 stages"; "" for the only one.
        parameters (tuple[int, ...]): what its kernel gets.
    """

    label: str
    parameters: tuple[int, ...] = ()


class Step(NamedTuple):
    """A kernel of a ladder.

    Attributes:
        name (str): the name of its file: "004_1_0".
        idea (str): what it adds to the step before.
        operands (str): the dtype of a and b: "f32", "f16", "bf16", "tf32" or "f64".
        sums (str): the dtype of the accumulator.
        layout (Layout): of a and b. c is row-major, and column-major where both are ("TT").
        ceiling (str | None): the probe's name of the instruction that bounds it.
        is_rung (bool): is it compared with the step before?
        variants (tuple[Variant, ...]): at least one.
    """

    name: str
    idea: str
    operands: str
    sums: str
    layout: Layout
    ceiling: str | None
    is_rung: bool = True
    variants: tuple[Variant, ...] = (Variant(""),)

    @property
    def document(self) -> str:
        """ "004"."""
        return self.name[:3]

    @property
    def has_cycles(self) -> bool:
        """Does the kernel write the clocks of each block?"""
        return self.document == "003"

    @property
    def products(self) -> int | None:
        """How many products are added before a rounding, where a GPU's own number is not it."""
        return {"000_hgemm": 8, "001_tf32": 4}.get(self.name)

    @property
    def result(self) -> str:
        """The dtype of c."""
        return "f32" if self.name == "004_3_2_outside" else self.sums


F64 = "wmma f64 f64 f64 m8n8k4"
F16 = "wmma f16 f16 f32 m16n16k16"
BF16 = "mma bf16 bf16 f32 m16n8k16"
MMA = "mma f16 f16 f32 m16n8k16"
HGEMM = "mma f16 f16 f16 m16n8k8"

TILES = (32, 64, 96, 128)
PADDINGS = (0, 2, 4, 6)
REPEATS = tuple(2**i for i in range(13))
# Block and warp tiles of 000_hgemm.cu. The six of the model come first, then cuBLAS 10.1's, then
# variants of the last of the six.
HGEMM_TILES = (
    *(f"{block} {warp}" for block in ("128x128x32", "256x128x32", "256x256x32")
      for warp in ("64x64", "128x64")),
    "128x128x64 64x64",
    "256x256x32 128x64, no padding",
    "256x256x32 128x64, stores 2 apart",
    "256x256x32 128x64, stores at once",
    "256x256x32 128x64, ldmatrix",
)  # fmt: skip
MODELLED = 6

STEPS = (
    Step(
        "000_hgemm",
        "large tiles, padded rows, stores between the products",
        "f16", "f16", "TN", HGEMM,
        variants=tuple(Variant(tile, (i,)) for i, tile in enumerate(HGEMM_TILES)),
    ),
    Step("001_1_single", "one warp, one WMMA", "f64", "f64", "TT", F64),
    Step("001_2_row", "a loop over k", "f64", "f64", "TT", F64),
    Step("001_3_blocks", "many blocks of one warp", "f64", "f64", "TT", F64),
    Step("001_4_tile", "four warps a block share lines of the cache", "f64", "f64", "TT", F64),
    Step(
        "001_5_shared_a",
        "a in shared memory, padded against conflicts",
        "f64", "f64", "TT", F64,
        variants=tuple(
            Variant(f"{tile}x{tile}x4, pad {pad}", (tile, pad))
            for tile in TILES
            for pad in PADDINGS
        ),
    ),
    Step(
        "001_6_shared_ab",
        "a and b in shared memory, deeper k-blocks",
        "f64", "f64", "TT", F64,
        variants=tuple(
            Variant(f"{tile}x{tile}x{deep}", (tile, deep)) for tile in TILES for deep in TILES
        ),
    ),
    Step(
        "001_peak",
        "products of one load, again and again",
        "f64", "f64", "TT", F64,
        is_rung=False,
        variants=(
            *(Variant(f"m8n8k4, {count} times", (4, count)) for count in REPEATS),
            *(Variant(f"m16n8k16, {count} times", (16, count)) for count in REPEATS),
        ),
    ),
    Step(
        "001_f16",
        "the shapes of float16, float32 sums",
        "f16", "f32", "TT", F16,
        is_rung=False,
        variants=tuple(
            Variant(shape, (rows, 32))
            for shape, rows in (("16x16x16", 16), ("32x8x16", 32), ("8x32x16", 8))
        ),
    ),
    Step(
        "001_f16",
        "the shapes of float16, float16 sums",
        "f16", "f16", "TT", "wmma f16 f16 f16 m16n16k16",
        is_rung=False,
        variants=tuple(
            Variant(f"{shape}, f16 sums", (rows, 16))
            for shape, rows in (("16x16x16", 16), ("32x8x16", 32), ("8x32x16", 8))
        ),
    ),
    Step(
        "001_tf32", "the shape of TF32", "tf32", "f32", "TT", "wmma tf32 tf32 f32 m16n16k8",
        is_rung=False,
    ),
    Step(
        "002_0_naive",
        "a thread computes one element",
        "f32", "f32", "NN", None,
        variants=(Variant("rows in x", (0,)),),
    ),
    Step(
        "002_0_naive",
        "the same with x and y swapped: adjacent threads read adjacent elements",
        "f32", "f32", "NN", None,
        is_rung=False,
        variants=(Variant("columns in x", (1,)),),
    ),
    Step("002_1_block", "a block shares tiles in shared memory", "f32", "f32", "NN", None),
    Step("002_2_thread", "a thread computes 8 rows of a column", "f32", "f32", "NN", None),
    Step("002_3_thread2d", "a thread computes 8x8 elements", "f32", "f32", "NN", None),
    Step("002_4_wmma", "a warp multiplies 16x16x16", "f16", "f32", "NN", F16),
    Step("002_5_warp_tile", "a warp keeps 4x4 tiles", "f16", "f32", "NN", F16),
    Step("002_6_edges", "zeros beyond the edges: any M, N, K", "f16", "f32", "NN", F16),
    Step("003_baseline", "copy, wait, ldmatrix, multiply", "bf16", "f32", "TN", BF16),
    Step("003_pipeline", "copy the next tile meanwhile", "bf16", "f32", "TN", BF16),
    Step("003_permuted", "permuted rows, no conflicts", "bf16", "f32", "TN", BF16),
    Step("003_both", "both at once", "bf16", "f32", "TN", BF16),
    Step("004_1_0", "mma.sync, elements copied one by one", "f16", "f32", "TN", MMA),
    Step("004_1_1", "2x2 tiles a warp", "f16", "f32", "TN", MMA),
    Step("004_2_0", "16-byte copies, permuted rows, ldmatrix", "f16", "f32", "TN", MMA),
    Step("004_2_1", "fragments of a are kept", "f16", "f32", "TN", MMA),
    Step(
        "004_3_0",
        "cp.async into a pipeline of stages",
        "f16", "f32", "TN", MMA,
        variants=tuple(Variant(f"{count} stages", (count,)) for count in (2, 3, 4, 5)),
    ),
    Step(
        "004_3_1",
        "four times the tiles: blocks of 128x128",
        "f16", "f32", "TN", MMA,
        variants=tuple(
            Variant(f"{count} stages, warps of 64x{columns}", (count, columns))
            for count in (3, 4)
            for columns in (32, 64)
        ),
    ),
    Step(
        "004_3_2_outside",
        "sums leave the tensor core every 32 of k",
        "f16", "f32", "TN", MMA,
        is_rung=False,
        variants=(Variant("f32 inside", (32,)),),
    ),
    Step(
        "004_3_2_outside",
        "sums leave the tensor core every 32 of k",
        "f16", "f16", "TN", "mma f16 f16 f16 m16n8k16",
        is_rung=False,
        variants=(Variant("f16 inside", (16,)),),
    ),
)  # fmt: skip

# The sizes of the documents, or the nearest ones that all steps take: M = N = K.
SIZES = {"000": 8192, "001": 3072, "002": 4096, "003": 2048, "004": 4096}
DOCUMENTS = tuple(SIZES)


def steps(document: str) -> tuple[Step, ...]:
    """The steps of a ladder, in the order in which they are read.

    ValueError: there is no such ladder.

    Example:
        >>> from tcgemm.lab import ladder
        >>> [step.name for step in ladder.steps("003")]
        ['003_baseline', '003_pipeline', '003_permuted', '003_both']
    """
    if document not in SIZES:
        names = ", ".join(f"{name} ({published.DOCUMENTS[name].short})" for name in DOCUMENTS)
        raise ValueError(f"ladder is {document!r}; expected one of {names}.")
    return tuple(step for step in STEPS if step.document == document)
