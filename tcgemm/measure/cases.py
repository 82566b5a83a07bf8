"""The sets of cases. `python -m tcgemm bench --set NAME` measures one.

    squares    M = N = K in all layouts, also sizes that no tile divides
    llm        GEMMs of language models
    epilogue   linear with bias, an activation or a residual
    train      forward and backward of a linear layer
    fp8        e4m3 with one scale a tensor; sums promoted or fast
    scales     e4m3 with scales of rows and of blocks
    int8, tf32, f64
    highest    f32 operands, all bits kept
    batch      bmm
    small-m    few rows
    long-k     small results with a long K
    sparse-mm  2:4 sparse weights; the passes that prune and compress
    random     seeded random shapes, layouts and dtypes
    doc000     sizes of a published comparison; published_sizes.py has them

Sets whose name begins with "drawn-" are drawn by a seed: drawn.py has them. The sets smoke,
smoke-dtypes and smoke-sparse have small cases that a CPU runs in seconds.

A set has parts. The dtypes and layouts of a call replace those of most parts; of others, and of
drawn sets, they choose cases.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tcgemm.measure import drawn, published_sizes
from tcgemm.measure.case import FLOAT8, FLOATS, FORWARD, SCALES, Case, Operation
from tcgemm.measure.operands import LAYOUTS
from tcgemm.typing import Activation, Float8Precision, Layout, words

Dtypes = Sequence[str] | None
Layouts = Sequence[Layout] | None
Size = tuple[int, int, int]  # m, n, k

SQUARES = (512, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 16384)
RAGGED_SQUARES = (511, 1000, 1023, 2047, 3001, 4095, 4098, 4100, 4104, 8191)
LLM = (  # tokens x out x in of 8B and 70B dense models and of a mixture of experts
    (4096, 6144, 4096),
    (4096, 4096, 4096),
    (4096, 28672, 4096),
    (4096, 4096, 14336),
    (2048, 10240, 8192),
    (2048, 8192, 8192),
    (4096, 28672, 8192),
    (2048, 8192, 28672),
    (2048, 2112, 7168),
    (2048, 24576, 1536),
)
# The layers of these models for 512 to 8192 tokens, for dense and for fused operations. A part of
# 512 x 2112 x 7168 is a wave of few tiles, which the sets of small results measure.
LLM_LAYERS = ((4096, 4096), (6144, 4096), (28672, 4096))
LLM_LAYERS += ((4096, 14336), (2112, 7168), (128256, 4096))
LLM_TOKENS = (512, 2048, 4096, 8192)
LLM_GRID = tuple(
    (m, n, k) for m in LLM_TOKENS for n, k in LLM_LAYERS if (m, n, k) != (512, 2112, 7168)
)
WEIGHTS = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (7168, 2048))
SMALL_M = tuple((m, n, k) for n, k in WEIGHTS for m in (1, 2, 4, 8, 16, 32, 64, 128, 256))
FEW_ROWS = [(m, 4096, 4096) for m in (1, 16, 64)]
LONG_K = ((64, 64, 65536), (128, 128, 32768), (256, 256, 16384), (512, 512, 32768))
LONG_K += ((100, 1000, 10000), (1024, 1024, 65536), (512, 2112, 7168))
BATCH = (  # batch, M = N = K
    (32, 64),
    (32, 128),
    (512, 64),
    (64, 256),
    (128, 128),
    (512, 128),
    (32, 512),
    (32, 1024),
    (16, 2048),
)
EPILOGUES = ("bias", *(f"bias+{word}" for word in words(Activation)))
EPILOGUES += ("residual", "bias+gelu+residual")
TRAIN = ((512, 4096, 4096), (4096, 4096, 4096), (4096, 14336, 4096), (4096, 4096, 14336))
TRAIN += ((2048, 8192, 8192),)
HOST = ((64, 64, 64), (512, 512, 512), (511, 511, 511))
SPARSE = ("bf16", "f16", "s8", "e4m3", "tf32")
EVEN = (2048, 4096, 8192, 16384)
HIGHEST = (512, 1024, 2048, 3072, 4096, 6144, 8192)
PREPARED = [(m, n, 4096) for n in (4096, 14336) for m in (16, 256, 4096)]
CLIFF = (4088, 4095, 4097, 4101, 4104)  # sizes close to 4096, of M, of N, of K and of all three
IRREGULAR = ((5000, 333, 777), (333, 5001, 2049), (100, 1000, 10000))
RANDOM_SEED, RANDOM_CASES = 24, 32
SMALL = ((96, 144, 256),)
OTHERS: tuple[Layout, ...] = tuple(layout for layout in LAYOUTS if layout != "TN")
FLOAT8_SUMS: tuple[str, ...] = words(Float8Precision)
SMOKE = ((64, 64, 64), (65, 33, 17), (1, 40, 96))


def _cubes(*sizes: int) -> tuple[Size, ...]:
    return tuple((size, size, size) for size in sizes)


class Part:
    """Cases of one kind: each size in each dtype and layout.

    The dtypes and layouts that a caller asks for replace those of the part. With `among`, only
    these dtypes do; with `fixed`, the layouts that are asked for choose among those of the part.
    """

    sizes: tuple[Size, ...]
    dtypes: Sequence[str]
    layouts: Sequence[Layout]
    among: Sequence[str] | None
    fixed: bool
    op: Operation
    fields: dict[str, Any]

    def __init__(
        self,
        sizes: Iterable[Size],
        dtypes: Sequence[str] = ("bf16",),
        layouts: Sequence[Layout] = ("TN",),
        *,
        among: Sequence[str] | None = None,
        fixed: bool = False,
        op: Operation = "mm",
        **fields: Any,
    ) -> None:
        self.sizes, self.dtypes, self.layouts = tuple(sizes), dtypes, layouts
        self.among, self.fixed, self.op, self.fields = among, fixed, op, fields

    def cases(self, dtypes: Dtypes, layouts: Layouts) -> list[Case]:
        """The cases for these dtypes and layouts; None keeps those of the part."""
        names = dtypes or self.dtypes
        if self.among is not None:
            names = [name for name in names if name in self.among]
        places: Sequence[Layout] = layouts or self.layouts
        if self.fixed:
            places = [layout for layout in self.layouts if layout in (layouts or LAYOUTS)]
        return [
            Case(self.op, dtype, layout, *size, **self._fields_of(dtype))
            for dtype in names
            for layout in places
            for size in self.sizes
        ]

    def _fields_of(self, dtype: str) -> dict[str, Any]:
        """Sums of sparse float8 products are not promoted."""
        fast = "sparse" in self.fields.get("epilogue", "") and dtype in FLOAT8
        return {"accumulation": "fast"} | self.fields if fast else self.fields


def _beside_4096(dtype: str) -> tuple[Part, Part]:
    """Sizes close to 4096. torch is measured only where M, N and K are all changed: the cases that
    change one of them compare tcgemm with itself at 4096."""
    single: list[Any] = [
        tuple(size if index == dim else 4096 for index in range(3))
        for dim in range(3)
        for size in CLIFF
    ]
    return Part(_cubes(4096, *CLIFF), (dtype,)), Part(single, (dtype,), baseline=False)


def _against_tn(dtype: str) -> Part:
    """The layouts that tensor cores cannot read. The second baseline is tcgemm with TN."""
    return Part(_cubes(4096), (dtype,), OTHERS, fixed=True, self_baseline="TN")


def _linear(sizes: Iterable[Size], epilogue: str, op: Operation = "linear", **more: Any) -> Part:
    """Linear layers, whose only layout is TN."""
    return Part(sizes, fixed=True, op=op, epilogue=epilogue, **more)


def _sparse(sizes: Iterable[Size], dtypes: Sequence[str] = ("bf16",), **fields: Any) -> Part:
    """2:4 sparse weights; for tf32 the pattern is 1:2."""
    fields = {"epilogue": "sparse", "self_baseline": "dense"} | fields
    return Part(sizes, dtypes, fixed=True, **fields)


def _sparse_parts(size: int, host: int) -> tuple[Part, ...]:
    """The passes that prune and compress, and the host time of torch's linear with a SparseTensor24
    and of tcgemm's layer."""
    weight = ((size, 1, size),)
    layer: dict[str, Any] = {"op": "linear", "graph": False, "among": FLOATS}
    return (
        Part(weight, ("bf16", "s8"), fixed=True, op="compress", epilogue="prune"),
        Part(weight, fixed=True, among=FLOATS, op="prune", epilogue="transposable"),
        *(_sparse(_cubes(host), **layer, epilogue=term) for term in ("sparse", "sparse+layer")),
    )


def _scaled(sizes: Iterable[Size], accumulation: str, epilogue: str, **more: Any) -> Part:
    return Part(sizes, ("e4m3",), accumulation=accumulation, epilogue=epilogue, **more)


BY_TENSOR: dict[str, Any] = {"self_baseline": "tensor-scales"}
UNPREPARED: dict[str, Any] = {"op": "linear", "epilogue": "prepared", "self_baseline": "unprepared"}
TO_BF16 = "sparse+to-bf16"  # int8 operands with a bf16 result; the default is s32
E4M3: dict[str, Any] = {"among": ("e4m3",), "fixed": True}
F32: dict[str, Any] = {"dtypes": ("f32",), "among": ("f32",)}

PARTS: dict[str, tuple[Part, ...]] = {
    "squares": (
        Part(_cubes(*SQUARES, *RAGGED_SQUARES), FLOATS, FORWARD),
        Part(_cubes(1024, 2048, 4096, 8192, 4095), FLOATS, ("TT", "NT")),
        *_beside_4096("bf16"),
        Part(HOST, graph=False),
        Part(_cubes(4096), kernel="sm80"),
    ),
    "llm": (Part((*LLM_GRID, *LLM)),),
    "epilogue": (
        *(_linear(LLM_GRID, epilogue) for epilogue in EPILOGUES),
        _linear(HOST[:1], "bias", graph=False),
    ),
    "train": (  # the forward alone is a case of "linear"; forward and backward are one of "train"
        _linear(TRAIN, "bias", among=FLOATS),
        _linear((*TRAIN, *LLM_GRID), "bias", "train", among=FLOATS),
        _linear(LLM_GRID, "bias+gelu", "train", among=FLOATS),
    ),
    "fp8": (
        *(
            _scaled((*_cubes(*EVEN), *LLM_GRID, *FEW_ROWS), accumulation, "tensor-scales")
            for accumulation in ("fast", "promoted")
        ),
        *_beside_4096("e4m3"),
        _against_tn("e4m3"),
        Part(HOST[1:2], ("e4m3",), graph=False, epilogue="tensor-scales"),
    ),
    "scales": (
        *(_scaled(_cubes(*EVEN), sums, "row-scales", **BY_TENSOR) for sums in FLOAT8_SUMS),
        *(_scaled(LLM_GRID, sums, "row-scales") for sums in FLOAT8_SUMS),
        *(_scaled((*_cubes(*EVEN), *LLM_GRID), "promoted", term) for term in SCALES[2:]),
    ),
    "int8": (
        Part(_cubes(*EVEN), ("s8",), fixed=True),
        Part(_cubes(*EVEN), ("s8",), ("NN",), self_baseline="TN"),
        Part(FEW_ROWS, ("s8",), fixed=True),
        *_beside_4096("s8"),
        _against_tn("s8"),
    ),
    "tf32": (
        _against_tn("tf32"),
        Part(_cubes(*EVEN[:3]), ("tf32",), FORWARD),
        Part(FEW_ROWS, ("tf32",), fixed=True),
        *_beside_4096("tf32"),
    ),
    "f64": (
        Part(_cubes(512, 1024, *EVEN[:3]), ("f64",), FORWARD),
        Part(FEW_ROWS, ("f64",), fixed=True),
        *_beside_4096("f64"),
    ),
    "highest": (  # cubes of normal data (f16 terms) and of spread data (bf16 terms), other shapes
        Part(_cubes(*HIGHEST), layouts=FORWARD, **F32),
        Part(_cubes(*EVEN[:3]), layouts=FORWARD, epilogue="spread", **F32),
        Part(PREPARED, fixed=True, **F32, **UNPREPARED),
        Part(_cubes(4095), layouts=FORWARD, **F32),
        Part(LONG_K[1:3], **F32),
        Part(_cubes(512, 1024), op="bmm", batch=32, **F32),
    ),
    "batch": tuple(
        Part(_cubes(size), layouts=("NN", "TN"), op="bmm", batch=batch) for batch, size in BATCH
    ),
    "small-m": (Part(SMALL_M),),
    "long-k": (Part(LONG_K),),
    "sparse-mm": (
        _sparse((*_cubes(*EVEN), *LLM), (*FLOATS, "tf32"), among=(*FLOATS, "tf32")),
        _sparse(_cubes(*EVEN), ("s8", "e4m3")),
        _sparse(_cubes(*EVEN), ("s8",), among=("s8",), epilogue=TO_BF16),
        _sparse([(m, 28672, 4096) for m in (16, 64)]),
        *_sparse_parts(8192, 512),
    ),
    "smoke": (Part(SMOKE, ("bf16", "f32"), LAYOUTS),),
    "smoke-dtypes": (  # small cases of the sets fp8, scales, int8, tf32, f64 and highest
        Part(SMOKE[:2], ("s8", "u8", "e4m3", "e5m2", "tf32", "f64"), ("TN", "NT")),
        *(
            _scaled(SMALL, sums, term, **E4M3, **(BY_TENSOR if term == "row-scales" else {}))
            for term in SCALES
            for sums in FLOAT8_SUMS[: 1 if "x" in term else 2]
        ),
        Part(SMOKE[:1], ("s8", "tf32"), ("NN",), among=("s8", "tf32"), self_baseline="TN"),
        Part(((96, 80, 256),), layouts=("NN",), epilogue="spread", **F32),
        Part(((64, 80, 96),), fixed=True, **F32, **UNPREPARED),
    ),
    "smoke-sparse": (  # small cases of the set sparse-mm
        _sparse((SMOKE[0], (96, 80, 256)), SPARSE),
        _sparse(SMOKE[:1], ("s8",), among=("s8",), epilogue=TO_BF16),
        *_sparse_parts(72, 64),
    ),
}


def _random(dtypes: Dtypes, layouts: Layouts) -> list[Case]:
    """The same cases in each run: M, N and K are log-uniform, half of them multiples of 8."""
    source = random.Random(RANDOM_SEED)
    result = Part(IRREGULAR, FLOATS, FORWARD).cases(dtypes, layouts)
    for _ in range(RANDOM_CASES):
        step = source.choice((1, 8))
        m, n, k = (max(step, int(2 ** source.uniform(4, 13)) // step * step) for _ in range(3))
        dtype, layout = source.choice(dtypes or FLOATS), source.choice(layouts or LAYOUTS)
        result.append(Case("mm", dtype, layout, m, n, k))
    return result


OTHER_SETS = {"random": _random, "doc000": published_sizes.doc000}
SETS = (*PARTS, *OTHER_SETS)
_names = tuple(name for name in SETS if not name.startswith(("smoke", "doc")))
_dtypes = ("fp8", "scales", "int8", "tf32", "f64", "highest")
GROUPS: dict[str, tuple[str, ...]] = {
    "dense": tuple(name for name in _names if name not in (*_dtypes, "sparse-mm")),
    "dtypes": _dtypes,
    "sparse": ("sparse-mm",),
    "all": _names,
    "drawn": tuple(drawn.SETS),
}
NAMES = (*SETS, *drawn.SETS)


def _identity(case: Case) -> Case:
    """The case without the fields in which two cases of a set may differ and still be the same."""
    return replace(case, baseline=True, self_baseline="")


def cases(
    name: str,
    dtypes: Dtypes = None,
    layouts: Layouts = None,
    kernel: str = "",
    seed: int = drawn.SEED,
) -> list[Case]:
    """The cases of a set, each once.

    Example:
        >>> from tcgemm.measure import cases
        >>> [case.size for case in cases.cases("smoke", ("bf16",), ("TN",))]
        ['64^3', '65x33x17', '1x40x96']

    Arguments:
        name (str): one of NAMES.
        dtypes, layouts: replace the defaults of the set, or choose cases of a drawn set; None keeps
            them all.
        kernel (str): forces kernels whose name contains this text. Cases with a forced kernel do
            not measure what the planner chooses, so they get a set of their own, "squares:sm80".
        seed (int): draws the cases of a drawn set, whose name in the results is "drawn-mm@1".

    Raises ValueError for an unknown name.
    """
    if name not in NAMES:
        raise ValueError(
            f"tcgemm.measure.cases: name is {name!r}, but there are {', '.join(NAMES)}; pass one "
            "of these."
        )
    if name in PARTS:
        result = [case for part in PARTS[name] for case in part.cases(dtypes, layouts)]
    elif name in OTHER_SETS:
        result = OTHER_SETS[name](dtypes, layouts)
    else:
        result = drawn.cases(name, seed, dtypes, layouts)
        name = f"{name}@{seed}"
    if kernel:
        result = [replace(case, kernel=kernel) for case in result if not case.kernel]
    rows = [replace(c, set=f"{name}:{c.kernel}" if c.kernel else name) for c in result]
    unique: dict[Case, Case] = {}
    for case in rows:
        unique.setdefault(_identity(case), case)
    return list(unique.values())
