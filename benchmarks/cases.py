"""The named sets of cases: which product, in which dtype and layout, of which size.

A set is a function from (dtypes, layouts) to cases, so that `--dtype` and `--layout` can replace
what it takes by default. The sizes are those of the tables of rivals that the project compares
itself with: squares that are powers of two and some that are not, sizes no kernel likes, the
products of language models, and the two ways of having little to do (few rows, few columns with a
long K).

    op            mm  bmm  linear          m x n x k: a is (M, K), b is (K, N)
                  compress  prune          passes over a weight (M, K); n is 1
    layout        TN  NN  TT  NT           the letters of the BLAS call that torch makes, b first
    dtype         bf16 f16 f64 e4m3 e5m2 s8 u8, and of float32 operands tf32 (precision "high") and
                  f32 ("highest")
    accumulation  f32  f16  f64  s32; of float8 fast and promoted
    epilogue      parts joined by "+": scales of the operands, spread (f32: elements of a row lie up
                  to 2^40 apart), prepared (of linear: the weight's parts are kept), sparse (half of
                  b is zero and not stored), layer (of linear: a module), to-bf16 (the result
                  of integers), bias, an activation, residual; what a pass does besides

A case is timed against torch, and, where `own` says so, in the same turns against another product
of our own: how much does this layout, or do these scales, cost; what does preparing save?
"""

from dataclasses import dataclass, replace

FLOATS = ("bf16", "f16")
FLOAT8 = ("e4m3", "e5m2")
FORWARD = ("TN", "NN")
LAYOUTS = ("TN", "NN", "TT", "NT")
ACCUMULATION = {"f64": "f64", "s8": "s32", "u8": "s32", "e4m3": "promoted", "e5m2": "promoted"}
# Of b; a has the same, beside blocks of 128x128 it has 1x128.
SCALES = ("tensor-scales", "row-scales", "128x128-scales", "1x128-scales")
OF_OPERANDS = (*SCALES, "spread", "prepared", "sparse")  # parts that say something of a and b
PASSES = ("compress", "prune")


@dataclass(frozen=True)
class Case:
    """One line of a table. `kernel` forces catalog kernels whose name contains it."""

    op: str
    dtype: str
    layout: str
    m: int
    n: int
    k: int
    batch: int = 1
    accumulation: str = ""  # "": the default of the dtype
    epilogue: str = "none"
    graph: bool = True  # False: host microseconds of a call, without a graph
    set: str = ""
    kernel: str = ""
    target: float = 0.0  # the ratio to the rival that was promised; 0: none
    rival: bool = True  # is torch timed as well?
    own: str = (
        ""  # the other product of ours: "TN" (layout), "tensor-scales", "unprepared", "dense"
    )

    def __post_init__(self):
        if not self.accumulation:
            object.__setattr__(self, "accumulation", ACCUMULATION.get(self.dtype, "f32"))

    @property
    def parts(self):
        return () if self.epilogue == "none" else tuple(self.epilogue.split("+"))

    @property
    def scales(self):
        return next((part for part in self.parts if part in SCALES), None)

    @property
    def flops(self):
        """Of sparse products those of the dense ones."""
        return 0.0 if self.op in PASSES else 2.0 * self.batch * self.m * self.n * self.k

    @property
    def size(self):
        """The shape in words, as the tables print it."""
        if self.op in PASSES:
            return f"{self.m}x{self.k}"
        cube = self.m == self.n == self.k
        size = f"{self.m}^3" if cube else f"{self.m}x{self.n}x{self.k}"
        return size if self.batch == 1 else f"{self.batch} x {size}"


SQUARES = (512, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 16384)
RAGGED_SQUARES = (511, 1000, 1023, 2047, 3001, 4095, 4098, 4100, 4104, 8191)
RAGGED = (
    *((size, size, size) for size in RAGGED_SQUARES),
    (5000, 333, 777),
    (333, 5001, 2049),
    (100, 1000, 10000),
)
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
SMALL_M = (
    (1, 4096, 4096),
    (16, 4096, 4096),
    (64, 4096, 4096),
    (256, 4096, 4096),
    (16, 28672, 4096),
    (128, 28672, 4096),
    (512, 28672, 4096),
    (16, 7168, 2048),
    (16, 4096, 14336),
)
LONG_K = ((64, 64, 65536), (128, 128, 32768), (256, 256, 16384))
BATCH = (  # batch, size of the cube
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
EPILOGUES = ("bias", "bias+relu", "bias+gelu", "bias+gelu_tanh", "bias+silu", "bias+residual")
HOST = ((64, 64, 64), (512, 512, 512), (511, 511, 511))
SMOKE = ((64, 64, 64), (65, 33, 17), (1, 40, 96))
SPARSE = ("bf16", "f16", "s8", "e4m3", "tf32")
EVEN = (2048, 4096, 8192, 16384)
FEW_ROWS = SMALL_M[:3]
HIGHEST = (512, 1024, 2048, 3072, 4096, 6144, 8192)
PREPARED = [(m, n, 4096) for n in (4096, 14336) for m in (16, 256, 4096)]
CLIFF = (4088, 4095, 4097, 4101, 4104)  # in M, N, K and all of them; 4096 is every other


def _products(sizes, dtypes, layouts, **extra):
    op = extra.pop("op", "mm")
    return [
        Case(op, dtype, layout, *size, **extra)
        for dtype in dtypes
        for layout in layouts
        for size in sizes
    ]


def _cubes(sizes):
    return [(size, size, size) for size in sizes]


def _targets(dtypes, layouts):
    """What was promised for the H200: one line a promise, in the order of the promise."""
    even = _products(_cubes((2048, 4096, 8192)), dtypes or FLOATS, layouts or FORWARD, target=0.93)
    ragged = _products(_cubes((4095, 8191)), dtypes or ("bf16",), layouts or ("TN",), target=3.0)
    alone = _products(_cubes((4096,)), dtypes or ("bf16",), layouts or ("TN",), target=0.55)
    return even + ragged + [replace(case, kernel="sm80") for case in alone]


def _layouts(dtypes, layouts):
    cubes = _cubes((1024, 2048, 4096, 8192, 4095))
    return _products(cubes, dtypes or FLOATS, layouts or ("TT", "NT"))


def _batch(dtypes, layouts):
    dtypes, layouts = dtypes or ("bf16",), layouts or ("NN", "TN")
    return [
        Case("bmm", dtype, layout, size, size, size, batch=batch)
        for dtype in dtypes
        for layout in layouts
        for batch, size in BATCH
    ]


def _epilogue(dtypes, layouts):
    return [
        Case("linear", dtype, "TN", *size, epilogue=epilogue)
        for dtype in dtypes or ("bf16",)
        for size in ((4096, 4096, 4096), (512, 4096, 4096))
        for epilogue in EPILOGUES
        if "TN" in (layouts or ("TN",))
    ]


def _host(dtypes, layouts):
    short, layouts = dtypes or ("bf16",), layouts or ("TN",)
    linear = _products(HOST[:1], short, ("TN",), op="linear", graph=False, epilogue="bias")
    scaled = Case("mm", "e4m3", "TN", *HOST[1], graph=False, epilogue="tensor-scales")
    return _products(HOST, short, layouts, graph=False) + linear + ([] if dtypes else [scaled])


def _int8(dtypes, layouts):
    dtypes, layouts = dtypes or ("s8",), layouts or FORWARD
    cases = _products(_cubes(EVEN), dtypes, layouts) + _products(FEW_ROWS, dtypes, ("TN",))
    return [replace(case, own="" if case.layout == "TN" else "TN") for case in cases]


def _fp8(dtypes, layouts):
    return [
        case
        for accumulation in ("fast", "promoted")
        for case in _products(
            [*_cubes(EVEN), *FEW_ROWS],
            *(dtypes or ("e4m3",), layouts or ("TN",)),
            accumulation=accumulation,
            epilogue="tensor-scales",
        )
    ]


def _scales(dtypes, layouts):
    kinds = (("fast", "row-scales"), ("promoted", "row-scales"))
    kinds += (("promoted", "128x128-scales"), ("promoted", "1x128-scales"))
    return [
        case
        for accumulation, epilogue in kinds
        for case in _products(
            *(_cubes(EVEN), dtypes or ("e4m3",), layouts or ("TN",)),
            accumulation=accumulation,
            epilogue=epilogue,
            own="tensor-scales" if epilogue == "row-scales" else "",
        )
    ]


def _wide(dtype, cubes):
    def build(dtypes, layouts):
        dtypes, layouts = dtypes or (dtype,), layouts or FORWARD
        return _products(_cubes(cubes), dtypes, layouts) + _products(FEW_ROWS, dtypes, ("TN",))

    return build


def _highest(dtypes, layouts):
    """f32 with all its bits: cubes of data for f16 and for bf16 parts, and what else users have."""
    dtypes, layouts = [name for name in dtypes or ("f32",) if name == "f32"], layouts or FORWARD
    kept = {"op": "linear", "epilogue": "prepared", "own": "unprepared"}
    return [
        *_products(_cubes(HIGHEST), dtypes, layouts),
        *_products(_cubes(EVEN[:3]), dtypes, layouts, epilogue="spread"),
        *_products(PREPARED, dtypes, ("TN",) if "TN" in layouts else (), **kept),
        *_products(_cubes((4095,)), dtypes, layouts),
        *_products(LONG_K[1:], dtypes, layouts[:1]),
        *_products(_cubes((512, 1024)), dtypes, layouts[:1], op="bmm", batch=32),
    ]


def _turned(dtypes, layouts):
    """The layouts that tensor cores do not read: what turning an operand costs."""
    dtypes = dtypes or ("s8", "e4m3", "tf32")
    return _products(_cubes((4096,)), dtypes, layouts or LAYOUTS[1:], own="TN")


def _cliff(dtypes, layouts):
    """One size at a time without torch, whose cliffs are known; all three with it."""
    dtypes, layouts = dtypes or ("bf16", "e4m3", "s8", "tf32", "f64"), layouts or ("TN",)
    single = [
        tuple(size if index == dim else 4096 for index in range(3))
        for dim in range(3)
        for size in CLIFF
    ]
    cubes = _products(_cubes((4096, *CLIFF)), dtypes, layouts)
    return cubes + _products(single, dtypes, layouts, rival=False)


def _smoke_dtypes(dtypes, layouts):
    """Small ones of everything that the sets of the dtypes have, for a machine without a GPU."""
    dtypes, sizes = dtypes or ("s8", "u8", "e4m3", "e5m2", "tf32", "f64"), SMOKE[:2]
    scaled = [
        replace(case, own="tensor-scales" if case.scales == "row-scales" else "")
        for epilogue in SCALES
        for accumulation in ("promoted", "fast")[: 1 if "x" in epilogue else 2]
        for case in _products(
            ((96, 144, 256),), ("e4m3",), ("TN",), accumulation=accumulation, epilogue=epilogue
        )
    ]
    turned = _products(sizes[:1], ("s8", "tf32"), ("NN",), own="TN")
    spread = _products(((96, 80, 256),), ("f32",), ("NN",), epilogue="spread")
    kept = {"op": "linear", "epilogue": "prepared", "own": "unprepared"}
    prepared = _products(((64, 80, 96),), ("f32",), ("TN",), **kept)
    return _products(sizes, dtypes, layouts or ("TN", "NT")) + scaled + turned + spread + prepared


def _sparse(sizes, dtypes, op="mm", **extra):
    """Weights half of which are zero: "2:4", of tf32 "1:2"; sums of float8 are not promoted."""
    extra = {"epilogue": "sparse", "own": "dense", **extra}
    return [
        Case(op, dtype, "TN", *size, accumulation="fast" if dtype in FLOAT8 else "", **extra)
        for dtype in dtypes
        for size in sizes
    ]


def _sparse_mm(dtypes):
    cubes = _cubes(EVEN)
    both = [*cubes, *(size for size in LLM if size not in cubes)]
    floats = (*FLOATS, "tf32")
    sizes = {name: both if name in floats else cubes for name in dtypes or SPARSE}
    found = [case for name in sizes for case in _sparse(sizes[name], (name,))]
    return found + _to_bf16(cubes, sizes)


def _to_bf16(sizes, dtypes):
    """Integers, whose results are s32 by default."""
    return _sparse(sizes, [name for name in dtypes if name == "s8"], epilogue="sparse+to-bf16")


def _sparse_few(dtypes):
    return _sparse([(m, 28672, 4096) for m in (16, 64)], dtypes or ("bf16",))


def _sparse_passes(dtypes, size=8192):
    def case(op, dtype, epilogue):
        return Case(op, dtype, "TN", size, 1, size, epilogue=epilogue)

    floats = [dtype for dtype in dtypes or ("bf16",) if dtype in FLOATS]
    return [
        *(case("compress", dtype, "prune") for dtype in dtypes or ("bf16", "s8")),
        *(case("prune", dtype, "transposable") for dtype in floats),
    ]


def _sparse_host(dtypes, size=512):
    """torch's linear with a SparseTensor24, and the module."""
    floats = [dtype for dtype in dtypes or ("bf16",) if dtype in FLOATS]
    call = {"op": "linear", "graph": False}
    return [
        case
        for epilogue in ("sparse", "sparse+layer")
        for case in _sparse(_cubes((size,)), floats, **call, epilogue=epilogue)
    ]


def _smoke_sparse(dtypes):
    """Small ones of everything that the sparse sets have, for a machine without a GPU."""
    products = _sparse((SMOKE[0], (96, 80, 256)), dtypes or SPARSE)
    products += _to_bf16(SMOKE[:1], dtypes or SPARSE)
    return products + _sparse_passes(dtypes, 72) + _sparse_host(dtypes, 64)


def _rows_alone(build):
    """Of sets that have operands in rows, and no other layout."""
    return lambda dtypes, layouts: build(dtypes) if "TN" in (layouts or LAYOUTS) else []


def _simple(sizes, default_dtypes, default_layouts):
    def build(dtypes, layouts):
        return _products(sizes, dtypes or default_dtypes, layouts or default_layouts)

    return build


SETS = {
    "targets": _targets,
    "squares": _simple(_cubes(SQUARES), FLOATS, FORWARD),
    "ragged": _simple(RAGGED, FLOATS, FORWARD),
    "layouts": _layouts,
    "llm": _simple(LLM, ("bf16",), ("TN",)),
    "small-m": _simple(SMALL_M, ("bf16",), ("TN",)),
    "long-k": _simple(LONG_K, ("bf16",), ("TN",)),
    "batch": _batch,
    "epilogue": _epilogue,
    "host": _host,
    "int8": _int8,
    "fp8": _fp8,
    "scales": _scales,
    "tf32": _wide("tf32", EVEN[:3]),
    "f64": _wide("f64", (1024, *EVEN[:3])),
    "highest": _highest,
    "turned": _turned,
    "cliff": _cliff,
    "sparse-mm": _rows_alone(_sparse_mm),
    "sparse-few": _rows_alone(_sparse_few),
    "sparse-passes": _rows_alone(_sparse_passes),
    "sparse-host": _rows_alone(_sparse_host),
    "smoke": _simple(SMOKE, ("bf16", "f32"), LAYOUTS),
    "smoke-dtypes": _smoke_dtypes,
    "smoke-sparse": _rows_alone(_smoke_sparse),
}
_names = [name for name in SETS if not name.startswith("smoke")]
GROUPS = {
    "dense": tuple(_names[: _names.index("int8")]),
    "dtypes": tuple(_names[_names.index("int8") : _names.index("sparse-mm")]),
    "sparse": tuple(_names[_names.index("sparse-mm") :]),
    "all": tuple(_names),
}


def cases(name, dtypes=None, layouts=None, kernel=""):
    """The cases of the set `name`; `kernel` forces a catalog kernel for all of them.

    A forced kernel answers another question than the planner's choice, so it is another set.
    """
    if name not in SETS:
        raise ValueError(f"{name!r} is no set of cases; there are {', '.join(SETS)}.")
    found = SETS[name](dtypes, layouts)
    forced = [replace(case, kernel=kernel or case.kernel) for case in found]
    return [replace(case, set=f"{name}:{case.kernel}" if case.kernel else name) for case in forced]
