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

A set is a function (dtypes, layouts) -> cases. The arguments replace the defaults of the set; None
keeps them. Of a drawn set they choose cases.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tcgemm.measure import drawn, published_sizes
from tcgemm.measure.case import FLOAT8, FLOATS, FORWARD, SCALES, Case
from tcgemm.measure.operands import LAYOUTS
from tcgemm.typing import Activation, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tcgemm.measure.case import Operation
    from tcgemm.typing import Layout, MeasuredDType

    Dtypes = Sequence[MeasuredDType] | None
    Layouts = Sequence[Layout] | None

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
SMOKE = ((64, 64, 64), (65, 33, 17), (1, 40, 96))


def _gemms(sizes, dtypes, layouts, **extra):
    op = extra.pop("op", "mm")
    return [
        Case(op, dtype, layout, *size, **extra)
        for dtype in dtypes
        for layout in layouts
        for size in sizes
    ]


def _cubes(sizes):
    return [(size, size, size) for size in sizes]


def _beside_4096(dtypes, layouts):
    """Sizes close to 4096. torch is measured only where M, N and K are all changed: the cases that
    change one of them compare tcgemm with itself at 4096."""
    single = [
        tuple(size if index == dim else 4096 for index in range(3))
        for dim in range(3)
        for size in CLIFF
    ]
    cubes = _gemms(_cubes((4096, *CLIFF)), dtypes, layouts or ("TN",))
    return cubes + _gemms(single, dtypes, layouts or ("TN",), baseline=False)


def _against_tn(dtypes, layouts):
    """The layouts that tensor cores cannot read. The second baseline is tcgemm with TN."""
    other_layouts = [layout for layout in layouts or LAYOUTS if layout != "TN"]
    return _gemms(_cubes((4096,)), dtypes, other_layouts, self_baseline="TN")


def _squares(dtypes, layouts):
    bf16 = dtypes or ("bf16",)
    result = _gemms(_cubes(SQUARES + RAGGED_SQUARES), dtypes or FLOATS, layouts or FORWARD)
    transposed_a = _cubes((1024, 2048, 4096, 8192, 4095))
    result += _gemms(transposed_a, dtypes or FLOATS, layouts or ("TT", "NT"))
    result = [replace(case, target=_square_target(case)) for case in result]
    result += _beside_4096(bf16, layouts)
    result += _gemms(HOST, bf16, layouts or ("TN",), graph=False)
    sm80 = _gemms(_cubes((4096,)), bf16, layouts or ("TN",), target=0.55, kernel="sm80")
    return result + sm80


def _square_target(case):
    """The target of the ratio to torch on an H200: 0.93 at even sizes, 3 at odd ones, 0 if the case
    has none."""
    if case.dtype not in FLOATS or case.layout not in FORWARD:
        return 0.0
    if case.m in (4095, 8191) and (case.dtype, case.layout) == ("bf16", "TN"):
        return 3.0
    return 0.93 if case.m in (2048, 4096, 8192) else 0.0


def _rows_only(build):
    """For sets whose only layout is TN."""
    return lambda dtypes, layouts: build(dtypes) if "TN" in (layouts or LAYOUTS) else []


def _epilogue(dtypes):
    linear = {"op": "linear", "layouts": ("TN",)}
    result = [
        case
        for epilogue in EPILOGUES
        for case in _gemms(LLM_GRID, dtypes or ("bf16",), epilogue=epilogue, **linear)
    ]
    return result + _gemms(HOST[:1], dtypes or ("bf16",), graph=False, epilogue="bias", **linear)


def _train(dtypes):
    """The forward alone is a case of "linear"; forward and backward together are one of "train"."""
    floats = [dtype for dtype in dtypes or ("bf16",) if dtype in FLOATS]
    forward = _gemms(TRAIN, floats, ("TN",), op="linear", epilogue="bias")
    training = _gemms((*TRAIN, *LLM_GRID), floats, ("TN",), op="train", epilogue="bias")
    return forward + training + _gemms(LLM_GRID, floats, ("TN",), op="train", epilogue="bias+gelu")


def _batch(dtypes, layouts):
    return [
        case
        for batch, size in BATCH
        for case in _gemms(
            _cubes((size,)), dtypes or ("bf16",), layouts or ("NN", "TN"), op="bmm", batch=batch
        )
    ]


def _fp8(dtypes, layouts):
    float8, sizes = dtypes or ("e4m3",), [*_cubes(EVEN), *LLM_GRID, *FEW_ROWS]
    options = {"epilogue": "tensor-scales"}
    result = [
        case
        for accumulation in ("fast", "promoted")
        for case in _gemms(sizes, float8, layouts or ("TN",), accumulation=accumulation, **options)
    ]
    result += _beside_4096(float8, layouts) + _against_tn(float8, layouts)
    return result + _gemms(HOST[1:2], float8, layouts or ("TN",), graph=False, **options)


def _scales(dtypes, layouts):
    granularities = (("fast", "row-scales"), ("promoted", "row-scales"))
    granularities += (("promoted", "128x128-scales"), ("promoted", "1x128-scales"))
    dtypes, layouts = dtypes or ("e4m3",), layouts or ("TN",)
    result = []
    for accumulation, epilogue in granularities:
        kind = {"accumulation": accumulation, "epilogue": epilogue}
        baseline = "tensor-scales" if epilogue == "row-scales" else ""
        result += _gemms(_cubes(EVEN), dtypes, layouts, **kind, self_baseline=baseline)
        result += _gemms(LLM_GRID, dtypes, layouts, **kind)
    return result


def _int8(dtypes, layouts):
    dtypes = dtypes or ("s8",)
    result = _gemms(_cubes(EVEN), dtypes, layouts or FORWARD) + _gemms(FEW_ROWS, dtypes, ("TN",))
    result = [replace(c, self_baseline="" if c.layout == "TN" else "TN") for c in result]
    return result + _beside_4096(dtypes, layouts) + _against_tn(dtypes, layouts)


def _tf32(dtypes, layouts):
    dtypes = dtypes or ("tf32",)
    result = _against_tn(dtypes, layouts)
    result += _gemms(_cubes(EVEN[:3]), dtypes, layouts or FORWARD)
    return result + _gemms(FEW_ROWS, dtypes, ("TN",)) + _beside_4096(dtypes, layouts)


def _f64(dtypes, layouts):
    dtypes = dtypes or ("f64",)
    result = _gemms(_cubes((512, 1024, *EVEN[:3])), dtypes, layouts or FORWARD)
    return result + _gemms(FEW_ROWS, dtypes, ("TN",)) + _beside_4096(dtypes, layouts)


def _highest(dtypes, layouts):
    """Cubes of normal data (f16 terms) and of spread data (bf16 terms), and other shapes."""
    dtypes, layouts = [name for name in dtypes or ("f32",) if name == "f32"], layouts or FORWARD
    prepared = {"op": "linear", "epilogue": "prepared", "self_baseline": "unprepared"}
    return [
        *_gemms(_cubes(HIGHEST), dtypes, layouts),
        *_gemms(_cubes(EVEN[:3]), dtypes, layouts, epilogue="spread"),
        *_gemms(PREPARED, dtypes, ("TN",) if "TN" in layouts else (), **prepared),
        *_gemms(_cubes((4095,)), dtypes, layouts),
        *_gemms(LONG_K[1:3], dtypes, layouts[:1]),
        *_gemms(_cubes((512, 1024)), dtypes, layouts[:1], op="bmm", batch=32),
    ]


def _sparse(sizes, dtypes, op: Operation = "mm", **extra):
    """2:4 sparse weights; for tf32 the pattern is 1:2. Sums of float8 are not promoted."""
    extra = {"epilogue": "sparse", "self_baseline": "dense", **extra}
    return [
        Case(op, dtype, "TN", *size, accumulation="fast" if dtype in FLOAT8 else "", **extra)
        for dtype in dtypes
        for size in sizes
    ]


def _sparse_mm(dtypes):
    cubes = _cubes(EVEN)
    shapes = [*cubes, *(size for size in LLM if size not in cubes)]
    floats = (*FLOATS, "tf32")
    sizes = {name: shapes if name in floats else cubes for name in dtypes or SPARSE}
    result = [case for name in sizes for case in _sparse(sizes[name], (name,))]
    result += _to_bf16(cubes, sizes)
    result += _sparse([(m, 28672, 4096) for m in (16, 64)], dtypes or ("bf16",))
    return result + _sparse_passes(dtypes) + _sparse_host(dtypes)


def _to_bf16(sizes, dtypes):
    """int8 operands with a bf16 result; the default is s32."""
    return _sparse(sizes, [name for name in dtypes if name == "s8"], epilogue="sparse+to-bf16")


def _sparse_passes(dtypes, size=8192):
    def case(op, dtype, epilogue):
        return Case(op, dtype, "TN", size, 1, size, epilogue=epilogue)

    floats = [dtype for dtype in dtypes or ("bf16",) if dtype in FLOATS]
    return [
        *(case("compress", dtype, "prune") for dtype in dtypes or ("bf16", "s8")),
        *(case("prune", dtype, "transposable") for dtype in floats),
    ]


def _sparse_host(dtypes, size=512):
    """torch's linear with a SparseTensor24, and tcgemm's layer."""
    floats = [dtype for dtype in dtypes or ("bf16",) if dtype in FLOATS]
    call = {"op": "linear", "graph": False}
    return [
        case
        for epilogue in ("sparse", "sparse+layer")
        for case in _sparse(_cubes((size,)), floats, **call, epilogue=epilogue)
    ]


def _random(dtypes, layouts):
    """The same cases in each run: M, N and K are log-uniform, half of them multiples of 8."""
    source = random.Random(RANDOM_SEED)
    result = _gemms(IRREGULAR, dtypes or FLOATS, layouts or FORWARD)
    for _ in range(RANDOM_CASES):
        step = source.choice((1, 8))
        m, n, k = (max(step, int(2 ** source.uniform(4, 13)) // step * step) for _ in range(3))
        dtype, layout = source.choice(dtypes or FLOATS), source.choice(layouts or LAYOUTS)
        result.append(Case("mm", dtype, layout, m, n, k))
    return result


def _smoke_dtypes(dtypes, layouts):
    """Small cases of the sets fp8, scales, int8, tf32, f64 and highest."""
    dtypes, sizes = dtypes or ("s8", "u8", "e4m3", "e5m2", "tf32", "f64"), SMOKE[:2]
    scaled = [
        replace(case, self_baseline="tensor-scales" if case.scales == "row-scales" else "")
        for epilogue in SCALES
        for accumulation in ("promoted", "fast")[: 1 if "x" in epilogue else 2]
        for case in _gemms(
            ((96, 144, 256),), ("e4m3",), ("TN",), accumulation=accumulation, epilogue=epilogue
        )
    ]
    against_tn = _gemms(sizes[:1], ("s8", "tf32"), ("NN",), self_baseline="TN")
    spread = _gemms(((96, 80, 256),), ("f32",), ("NN",), epilogue="spread")
    options = {"op": "linear", "epilogue": "prepared", "self_baseline": "unprepared"}
    prepared = _gemms(((64, 80, 96),), ("f32",), ("TN",), **options)
    return _gemms(sizes, dtypes, layouts or ("TN", "NT")) + scaled + against_tn + spread + prepared


def _smoke_sparse(dtypes):
    """Small cases of the set sparse-mm."""
    result = _sparse((SMOKE[0], (96, 80, 256)), dtypes or SPARSE)
    result += _to_bf16(SMOKE[:1], dtypes or SPARSE)
    return result + _sparse_passes(dtypes, 72) + _sparse_host(dtypes, 64)


def _simple(sizes, default_dtypes, default_layouts):
    def build(dtypes, layouts):
        return _gemms(sizes, dtypes or default_dtypes, layouts or default_layouts)

    return build


SETS: dict[str, Callable[[Dtypes, Layouts], list[Case]]] = {
    "squares": _squares,
    "llm": _simple((*LLM_GRID, *LLM), ("bf16",), ("TN",)),
    "epilogue": _rows_only(_epilogue),
    "train": _rows_only(_train),
    "fp8": _fp8,
    "scales": _scales,
    "int8": _int8,
    "tf32": _tf32,
    "f64": _f64,
    "highest": _highest,
    "batch": _batch,
    "small-m": _simple(SMALL_M, ("bf16",), ("TN",)),
    "long-k": _simple(LONG_K, ("bf16",), ("TN",)),
    "sparse-mm": _rows_only(_sparse_mm),
    "random": _random,
    "doc000": published_sizes.doc000,
    "smoke": _simple(SMOKE, ("bf16", "f32"), LAYOUTS),
    "smoke-dtypes": _smoke_dtypes,
    "smoke-sparse": _rows_only(_smoke_sparse),
}
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
    return replace(case, target=0.0, baseline=True, self_baseline="")


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
    if name in SETS:
        result = SETS[name](dtypes, layouts)
    else:
        result = drawn.cases(name, seed, dtypes, layouts)
        name = f"{name}@{seed}"
    if kernel:
        result = [replace(case, kernel=kernel, target=0.0) for case in result if not case.kernel]
    rows = [replace(c, set=f"{name}:{c.kernel}" if c.kernel else name) for c in result]
    unique: dict[Case, Case] = {}
    for case in rows:
        unique.setdefault(_identity(case), case)
    return list(unique.values())
