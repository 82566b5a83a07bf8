"""The sets of cases. `tcgemm bench --set NAME` measures one.

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
    doc000     the sizes of Yan, Wang and Chu (IPDPS 2020), figures 6 to 9: f16 and f32 sums

Sets whose name begins with "drawn-" are drawn by a seed: drawn.py has them. The sets smoke,
smoke-dtypes and smoke-sparse have small cases that a CPU runs in seconds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tcgemm.measure import drawn
from tcgemm.measure.case import FLOAT8, FLOATS, FORWARD, SCALES, Case, Operation
from tcgemm.measure.operands import LAYOUTS
from tcgemm.typing import Activation, Float8Precision, Layout, words

Dtypes = Sequence[str] | None
Layouts = Sequence[Layout] | None
Size = tuple[int, int, int]  # m, n, k


def _sizes(text: str) -> tuple[Size, ...]:
    """The sizes of a text such as "4096x6144x4096 ..."."""
    triples = (map(int, word.split("x")) for word in text.split())
    return tuple((m, n, k) for m, n, k in triples)


def _cubes(*sizes: int) -> tuple[Size, ...]:
    return tuple((size, size, size) for size in sizes)


SQUARES = (512, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 16384)
RAGGED_SQUARES = (511, 1000, 1023, 2047, 3001, 4095, 4098, 4100, 4104, 8191)
LLM = _sizes(  # tokens x out x in of 8B and 70B dense models and of a mixture of experts
    "4096x6144x4096 4096x4096x4096 4096x28672x4096 4096x4096x14336 2048x10240x8192 2048x8192x8192 "
    "4096x28672x8192 2048x8192x28672 2048x2112x7168 2048x24576x1536"
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
LONG_K = _sizes(
    "64x64x65536 128x128x32768 256x256x16384 512x512x32768 100x1000x10000 1024x1024x65536 "
    "512x2112x7168"
)
BATCH = ((32, 64), (32, 128), (512, 64), (64, 256), (128, 128))  # batch, M = N = K
BATCH += ((512, 128), (32, 512), (32, 1024), (16, 2048))
EPILOGUES = ("bias", *(f"bias+{word}" for word in words(Activation)))
EPILOGUES += ("residual", "bias+gelu+residual")
TRAIN = _sizes("512x4096x4096 4096x4096x4096 4096x14336x4096 4096x4096x14336 2048x8192x8192")
HOST = _cubes(64, 512, 511)
SPARSE = ("bf16", "f16", "s8", "e4m3", "tf32")
EVEN = (2048, 4096, 8192, 16384)
HIGHEST = (512, 1024, 2048, 3072, 4096, 6144, 8192)
PREPARED = [(m, n, 4096) for n in (4096, 14336) for m in (16, 256, 4096)]
CLIFF = (4088, 4095, 4097, 4101, 4104)  # sizes close to 4096, of M, of N, of K and of all three
IRREGULAR = _sizes("5000x333x777 333x5001x2049 100x1000x10000")
RANDOM_SEED, RANDOM_CASES = 24, 32
SMALL = _sizes("96x144x256")
OTHERS: tuple[Layout, ...] = tuple(layout for layout in LAYOUTS if layout != "TN")
FLOAT8_SUMS: tuple[str, ...] = words(Float8Precision)
SMOKE = _sizes("64x64x64 65x33x17 1x40x96")
PUBLISHED_WIDTHS = range(1024, 16385, 256)
PUBLISHED_SHAPES = _sizes("1x1x1 2x1x1 1x2x1 1x1x2 4x1x1 1x4x1 1x1x4")  # M, N, K in widths


def _part(
    sizes: Iterable[Size],
    dtypes: Sequence[str] = ("bf16",),
    layouts: Sequence[Layout] = ("TN",),
    op: Operation = "mm",
    **fields: Any,
) -> list[Case]:
    """Each size in each dtype and layout."""
    return [
        Case(op, dtype, layout, *size, **fields)
        for dtype in dtypes
        for layout in layouts
        for size in sizes
    ]


def _beside_4096(dtype: str) -> list[Case]:
    """Sizes close to 4096. torch is measured only where M, N and K are all changed: the cases that
    change one of them compare tcgemm with itself at 4096."""
    single = [(m, 4096, 4096) for m in CLIFF] + [(4096, n, 4096) for n in CLIFF]
    single += [(4096, 4096, k) for k in CLIFF]
    return _part(_cubes(4096, *CLIFF), (dtype,)) + _part(single, (dtype,), baseline=False)


def _against_tn(dtype: str) -> list[Case]:
    """The layouts that tensor cores cannot read. The second baseline is tcgemm with TN."""
    return _part(_cubes(4096), (dtype,), OTHERS, self_baseline="TN")


def _sparse(
    sizes: Iterable[Size], dtypes: Sequence[str] = ("bf16",), term: str = "", **fields: Any
) -> list[Case]:
    """2:4 sparse weights; for tf32 the pattern is 1:2. Float8 sums are not promoted."""
    dense = _part(sizes, dtypes, epilogue=f"sparse{term}", self_baseline="dense", **fields)
    return [replace(case, accumulation="fast") if case.dtype in FLOAT8 else case for case in dense]


def _sparse_parts(size: int, host: int) -> list[Case]:
    """The passes that prune and compress, and the host time of torch's linear with a SparseTensor24
    and of tcgemm's layer."""
    weight = ((size, 1, size),)
    return [
        *_part(weight, ("bf16", "s8"), op="compress", epilogue="prune"),
        *_part(weight, op="prune", epilogue="transposable"),
        *_sparse(_cubes(host), op="linear", graph=False),
        *_sparse(_cubes(host), term="+layer", op="linear", graph=False),
    ]


def _scaled(sizes: Iterable[Size], sums: str, term: str, own: str = "") -> list[Case]:
    return _part(sizes, ("e4m3",), accumulation=sums, epilogue=term, self_baseline=own)


def _random() -> list[Case]:
    """The same cases in each run: M, N and K are log-uniform, half of them multiples of 8."""
    source = random.Random(RANDOM_SEED)
    result = _part(IRREGULAR, FLOATS, FORWARD)
    for _ in range(RANDOM_CASES):
        step = source.choice((1, 8))
        m, n, k = (max(step, int(2 ** source.uniform(4, 13)) // step * step) for _ in range(3))
        result.append(Case("mm", source.choice(FLOATS), source.choice(LAYOUTS), m, n, k))
    return result


UNPREPARED: dict[str, Any] = {"op": "linear", "epilogue": "prepared", "self_baseline": "unprepared"}
TO_BF16 = "+to-bf16"  # int8 operands with a bf16 result; the default is s32
F32 = ("f32",)

SETS: dict[str, list[Case]] = {
    "squares": [
        *_part(_cubes(*SQUARES, *RAGGED_SQUARES), FLOATS, FORWARD),
        *_part(_cubes(1024, 2048, 4096, 8192, 4095), FLOATS, ("TT", "NT")),
        *_beside_4096("bf16"),
        *_part(HOST, graph=False),
        *_part(_cubes(4096), kernel="sm80"),
    ],
    "llm": _part((*LLM_GRID, *LLM)),
    "epilogue": [
        *(case for term in EPILOGUES for case in _part(LLM_GRID, op="linear", epilogue=term)),
        *_part(HOST[:1], op="linear", epilogue="bias", graph=False),
    ],
    "train": [  # the forward alone is a case of "linear"; forward and backward are one of "train"
        *_part(TRAIN, op="linear", epilogue="bias"),
        *_part((*TRAIN, *LLM_GRID), op="train", epilogue="bias"),
        *_part(LLM_GRID, op="train", epilogue="bias+gelu"),
    ],
    "fp8": [
        *_scaled((*_cubes(*EVEN), *LLM_GRID, *FEW_ROWS), "fast", "tensor-scales"),
        *_scaled((*_cubes(*EVEN), *LLM_GRID, *FEW_ROWS), "promoted", "tensor-scales"),
        *_beside_4096("e4m3"),
        *_against_tn("e4m3"),
        *_part(HOST[1:2], ("e4m3",), graph=False, epilogue="tensor-scales"),
    ],
    "scales": list(
        itertools.chain(
            *(_scaled(_cubes(*EVEN), s, "row-scales", "tensor-scales") for s in FLOAT8_SUMS),
            *(_scaled(LLM_GRID, sums, "row-scales") for sums in FLOAT8_SUMS),
            *(_scaled((*_cubes(*EVEN), *LLM_GRID), "promoted", term) for term in SCALES[2:]),
        )
    ),
    "int8": [
        *_part(_cubes(*EVEN), ("s8",)),
        *_part(_cubes(*EVEN), ("s8",), ("NN",), self_baseline="TN"),
        *_part(FEW_ROWS, ("s8",)),
        *_beside_4096("s8"),
        *_against_tn("s8"),
    ],
    "tf32": [
        *_against_tn("tf32"),
        *_part(_cubes(*EVEN[:3]), ("tf32",), FORWARD),
        *_part(FEW_ROWS, ("tf32",)),
        *_beside_4096("tf32"),
    ],
    "f64": [
        *_part(_cubes(512, 1024, *EVEN[:3]), ("f64",), FORWARD),
        *_part(FEW_ROWS, ("f64",)),
        *_beside_4096("f64"),
    ],
    "highest": [  # cubes of normal data (f16 terms) and of spread data (bf16 terms), other shapes
        *_part(_cubes(*HIGHEST), F32, FORWARD),
        *_part(_cubes(*EVEN[:3]), F32, FORWARD, epilogue="spread"),
        *_part(PREPARED, F32, **UNPREPARED),
        *_part(_cubes(4095), F32, FORWARD),
        *_part(LONG_K[1:3], F32),
        *_part(_cubes(512, 1024), F32, op="bmm", batch=32),
    ],
    "batch": [
        Case("bmm", "bf16", layout, size, size, size, batch)
        for batch, size in BATCH
        for layout in ("NN", "TN")
    ],
    "small-m": _part(SMALL_M),
    "long-k": _part(LONG_K),
    "sparse-mm": [
        *_sparse((*_cubes(*EVEN), *LLM), (*FLOATS, "tf32")),
        *_sparse(_cubes(*EVEN), ("s8", "e4m3")),
        *_sparse(_cubes(*EVEN), ("s8",), TO_BF16),
        *_sparse([(m, 28672, 4096) for m in (16, 64)]),
        *_sparse_parts(8192, 512),
    ],
    "smoke": _part(SMOKE, ("bf16", "f32"), LAYOUTS),
    "smoke-dtypes": [  # small cases of the sets fp8, scales, int8, tf32, f64 and highest
        *_part(SMOKE[:2], ("s8", "u8", "e4m3", "e5m2", "tf32", "f64"), ("TN", "NT")),
        *(case for sums in FLOAT8_SUMS for case in _scaled(SMALL, sums, SCALES[0])),
        *(case for sums in FLOAT8_SUMS for case in _scaled(SMALL, sums, SCALES[1], SCALES[0])),
        *(case for term in SCALES[2:] for case in _scaled(SMALL, "promoted", term)),
        *_part(SMOKE[:1], ("s8", "tf32"), ("NN",), self_baseline="TN"),
        *_part(_sizes("96x80x256"), F32, ("NN",), epilogue="spread"),
        *_part(_sizes("64x80x96"), F32, **UNPREPARED),
    ],
    "smoke-sparse": [  # small cases of the set sparse-mm
        *_sparse((SMOKE[0], (96, 80, 256)), SPARSE),
        *_sparse(SMOKE[:1], ("s8",), TO_BF16),
        *_sparse_parts(72, 64),
    ],
    "random": _random(),
    "doc000": [
        Case("mm", "f16", "TN", m * width, n * width, k * width, accumulation=sums)
        for m, n, k in PUBLISHED_SHAPES
        for width in PUBLISHED_WIDTHS
        for sums in ("f16", "f32")
    ],
}
_names = tuple(name for name in SETS if not name.startswith(("smoke", "doc")))
_dtypes = ("fp8", "scales", "int8", "tf32", "f64", "highest")
GROUPS: dict[str, tuple[str, ...]] = {
    "dense": tuple(name for name in _names if name not in (*_dtypes, "sparse-mm")),
    "dtypes": _dtypes,
    "sparse": ("sparse-mm",),
    "all": _names,
    "drawn": drawn.NAMES,
}
NAMES = (*SETS, *drawn.NAMES)


def _asked(case: Case, dtypes: Dtypes, layouts: Layouts) -> Iterator[Case]:
    """The case in each of these dtypes and layouts that it is measured in."""
    is_float = case.dtype in FLOATS and "sparse" not in case.terms
    is_linear = is_float and case.op in ("linear", "train")
    is_plain = is_float and case.op in ("mm", "bmm") and case.accumulation == "f32"
    for dtype, layout in itertools.product(dtypes or [case.dtype], layouts or [case.layout]):
        if is_plain:
            yield replace(case, dtype=dtype, layout=layout, accumulation="")
        elif layout == case.layout and dtype in (case.dtype, *(FLOATS if is_linear else ())):
            yield replace(case, dtype=dtype)


def cases(
    name: str,
    dtypes: Dtypes = None,
    layouts: Layouts = None,
    kernel: str = "",
    seed: int = drawn.SEED,
) -> list[Case]:
    """The cases of a set, each once.

    Arguments:
        name (str): one of NAMES.
        dtypes, layouts: choose cases. A plain product in 16 bits is measured in any dtype and
            layout, and a linear in both dtypes of 16 bits, but in a drawn set. None keeps all.
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
    if name in SETS:
        result = [new for case in SETS[name] for new in _asked(case, dtypes, layouts)]
    else:
        result = [
            case
            for case in drawn.cases(name, seed)
            if case.dtype in (dtypes or [case.dtype]) and case.layout in (layouts or [case.layout])
        ]
        name = f"{name}@{seed}"
    if kernel:
        result = [replace(case, kernel=kernel) for case in result if not case.kernel]
    unique: dict[Case, Case] = {}
    for case in result:
        case = replace(case, set=f"{name}:{case.kernel}" if case.kernel else name)
        # Two cases that differ in their baselines alone are the same.
        unique.setdefault(replace(case, baseline=True, self_baseline=""), case)
    return list(unique.values())
