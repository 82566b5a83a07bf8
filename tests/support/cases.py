"""Shapes, layouts and strides that products are tried on, and the tensors of them.

Every tensor that is a view lies in storage that is poison everywhere else (NaN, or a large integer
among small ones), so that a kernel that reads beside an operand spoils its result. dtype_matrix.py
has the combinations of dtypes.
"""

import copy
import io
import itertools
import pickle

import pytest
import torch

from tcgemm.measure.operands import LAYOUTS, is_transposed  # noqa: F401  (LAYOUTS: for tests)
from tcgemm.typing import Activation, words

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
S8, U8, S32 = torch.int8, torch.uint8, torch.int32
HALVES = (F16, BF16)
FLOATS = (F16, BF16, F32)
REAL = (*FLOATS, F64)
FP8, INT8 = (E4M3, E5M2), (S8, U8)
# As in csrc/core/dtype.h.
NAMES = {F16: "f16", BF16: "bf16", F32: "f32", F64: "f64"}
NAMES |= {E4M3: "e4m3", E5M2: "e5m2", S8: "s8", U8: "u8", S32: "s32"}
# The values of storage that nothing should read or write.
POISON = {S8: -77, U8: 179, S32: -0x5A5A5A5B}


def gpu(*values, mark="gpu", **options):
    """A parameter set that needs a GPU, or one that runs the instructions of `mark`."""
    marks = [pytest.mark.gpu, getattr(pytest.mark, mark)][: 1 if mark == "gpu" else 2]
    return pytest.param(*values, marks=marks, **options)


DEVICES = ("cpu", gpu("cuda"))
FP8_DEVICES = ("cpu", gpu("cuda", mark="sm89"))

# Around the tiles of every kernel (CPU and CUDA), and around 16-byte words.
EDGES = (1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257)
# Each edge once in each place: 7 and 11 share no factor with 19.
EDGE_SHAPES = tuple(
    (EDGES[i], EDGES[(7 * i + 3) % len(EDGES)], EDGES[(11 * i + 5) % len(EDGES)])
    for i in range(len(EDGES))
)
# Depths that end a k-block, an instruction or a word early, on a result of more than one tile.
K_TAIL_SHAPES = tuple((130, 70, k) for k in (1, 2, 31, 33, 48, 63, 65, 100, 511, 513, 1000))
RAGGED_SHAPES = ((1, 1, 1), (333, 5, 777), (3, 500, 129), (1, 1000, 64), (700, 1, 33), (2, 3, 2050))
SHAPES = EDGE_SHAPES + K_TAIL_SHAPES + RAGGED_SHAPES
FEW_SHAPES = ((129, 65, 200), (64, 128, 64), (17, 257, 33), (200, 72, 520))

# Indices past this need 64 bits.
LARGE = 2**31
CHUNK = 2**17  # rows that are compared at a time

ACTIVATIONS = words(Activation)


def major_strides(layout):
    """How a and b are stored, as names of STRIDES."""
    return tuple("transposed" if flip else "contiguous" for flip in is_transposed(layout))


def poison(dtype):
    return POISON.get(dtype, float("nan"))


def _empty(shape, like):
    dtype, device = like
    return torch.full(shape, poison(dtype), dtype=dtype, device=device)


def _padded(shape, like):
    """Rows of whole 16-byte words, and more of them than the matrix has."""
    *batch, rows, cols = shape
    word = 16 if like[0].itemsize == 1 else 8
    return _empty((*batch, rows, (cols + word - 1) // word * word + word), like)[..., :cols]


def _odd_pitch(shape, like):
    *batch, rows, cols = shape
    return _empty((*batch, rows, cols + 1 + cols % 2), like)[..., :cols]


def _offset(elements):
    def build(shape, like):
        size = 1
        for extent in shape:
            size *= extent
        return _empty((size + elements,), like)[elements:].view(shape)

    return build


def _stepped(row_step, col_step):
    def build(shape, like):
        *batch, rows, cols = shape
        whole = _empty((*batch, rows * row_step, cols * col_step), like)
        return whole[..., ::row_step, ::col_step]

    return build


def _expanded(*dims):
    """Stride 0 along these dimensions, counted from the last."""

    def build(shape, like):
        base = [1 if i - len(shape) in dims else extent for i, extent in enumerate(shape)]
        return _empty(base, like).expand(shape)

    return build


def _mirrored(build):
    """The same with rows and columns exchanged: MN-major where the other was K-major."""

    def mirror(shape, like):
        *batch, rows, cols = shape
        return build((*batch, cols, rows), like).mT

    return mirror


def _batch_innermost(shape, like):
    *batch, rows, cols = shape
    return _empty((rows, cols, *batch), like).movedim((0, 1), (-2, -1))


def _batch_reversed(shape, like):
    """Batch dimensions in the opposite order: they do not merge into one stride."""
    *batch, rows, cols = shape
    whole = _empty((*reversed(batch), rows, cols), like)
    return whole.permute(*reversed(range(len(batch))), -2, -1)


STRIDES = {
    "contiguous": _empty,
    "transposed": _mirrored(_empty),
    "padded": _padded,
    "transposed_padded": _mirrored(_padded),
    "odd_pitch": _odd_pitch,
    "transposed_odd": _mirrored(_odd_pitch),
    "offset": _offset(1),
    "offset_aligned": _offset(16),
    "transposed_offset": _mirrored(_offset(1)),
    "step_rows": _stepped(2, 1),
    "step_cols": _stepped(1, 2),
    "step_both": _stepped(3, 2),
    "expanded_rows": _expanded(-2),
    "expanded_cols": _expanded(-1),
    "expanded_both": _expanded(-1, -2),
}
BATCH_STRIDES = {
    "expanded_batch": _expanded(-3),
    "batch_innermost": _batch_innermost,
    "batch_reversed": _batch_reversed,
}
# The strides in which no two elements of an output overlap.
OUT_STRIDES = tuple(name for name in STRIDES if "expanded" not in name)


def empty(strides, shape, *, dtype, device="cpu"):
    """Poison everywhere, in storage of the strides that the name stands for."""
    build = STRIDES.get(strides) or BATCH_STRIDES[strides]
    return build(tuple(shape), (dtype, device))


def random_values(shape, dtype, largest=None):
    """Normal data, all integers there are, or integers of at most `largest`.

    The values come from the CPU's generator, so that they do not depend on the device.
    """
    if dtype.is_floating_point and largest is None:
        return torch.randn(shape, dtype=F32)
    low, high = (-largest, largest) if largest is not None else (-(2**31), 2**31 - 1)
    if not dtype.is_floating_point:
        low, high = max(low, torch.iinfo(dtype).min), min(high, torch.iinfo(dtype).max)
    return torch.randint(low, high + 1, shape)


def fill(view, *, largest=None):
    """Draws a view's values, its storage left alone elsewhere."""
    base = view
    for dim, stride in enumerate(view.stride()):
        if stride == 0:
            base = base.narrow(dim, 0, min(1, base.shape[dim]))
    values = random_values(base.shape, view.dtype, largest)
    base.copy_(values.to(F32) if view.dtype.is_floating_point else values)
    return view


def make(strides, *shape, dtype, device="cpu", largest=None):
    """A filled tensor of this shape and stride; see `empty` and `fill`."""
    return fill(empty(strides, shape, dtype=dtype, device=device), largest=largest)


def operands(layout, m, n, k, *, dtype, device="cpu", batch=(), largest=None):
    """a (*batch, M, K) and b (*batch, K, N) of a layout."""
    stored_a, stored_b = major_strides(layout)
    options = {"dtype": dtype, "device": device, "largest": largest}
    return make(stored_a, *batch, m, k, **options), make(stored_b, *batch, k, n, **options)


def stride_pairs():
    """Pairs of strides of a and b: all strides with a plain operand, and some pairs of others."""
    names = tuple(STRIDES)
    plain = [(name, "contiguous") for name in names] + [("contiguous", name) for name in names[1:]]
    mixed = list(itertools.zip_longest(names, (*names[5:], *names[:5])))
    return tuple(dict.fromkeys(plain + mixed))


class Guarded:
    """An output inside a larger buffer of poison: what is left unwritten, or written beside it,
    shows.

    strides is a name of STRIDES; `view` is what to write to.
    """

    def __init__(self, strides, shape, *, dtype, device="cpu", margin=64):
        view = empty(strides, shape, dtype=dtype, device=device)
        elements = view.untyped_storage().nbytes() // view.element_size() + 2 * margin
        self.buffer = torch.full((elements,), poison(dtype), dtype=dtype, device=device)
        offset = margin + view.storage_offset()
        self.view = self.buffer.as_strided(view.shape, view.stride(), offset)

    def untouched(self):
        """Is everything that the view does not cover still poison, to the bit?"""
        rest, view = self.buffer.clone(), self.view
        rest.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(poison(rest.dtype))
        whole = torch.full_like(rest, poison(rest.dtype))
        return torch.equal(rest.view(torch.uint8), whole.view(torch.uint8))


def graph_of(work):
    """The CUDA graph of what work() launches, and what it returned while it was captured.

    It runs once before, in a side stream, as torch asks for. The same stream is captured: the one
    that torch would take stays on the GPU that was current at the process's first capture.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = work()
    return graph, result


def spin(milliseconds=50):
    """Keeps the current stream busy."""
    torch.cuda._sleep(int(1.5e6 * milliseconds))


def waits_for_nothing(work, times=10):
    """Do calls of work, once warm, return while the GPU is still busy?"""
    work()
    torch.cuda.synchronize()
    spin(200)
    for _ in range(times):
        work()
    busy = not torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    return busy


def reloaded(value, weights_only=True, **options):
    """What torch.load reads of what torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only, **options)


def copies(value):
    """A module or tensor deep-copied, pickled and saved."""
    yield copy.deepcopy(value)
    yield pickle.loads(pickle.dumps(value))
    yield reloaded(value, weights_only=False)


def assert_undone(reports, model, before, parameters):
    """undo() restores the model, also when it is called twice."""
    for _ in range(2):
        for report in reports:
            report.undo()
        for module, (kind, state) in zip(model, before, strict=True):
            assert type(module) is kind and vars(module) == state
    assert all(parameters[name] is p for name, p in model.named_parameters())


def compiled(function):
    """The function compiled in one graph, and the list of tcgemm's operators in its graphs."""
    operators = []

    def backend(graph, _inputs):
        operators.extend(str(n.target) for n in graph.graph.nodes if "tcgemm" in str(n.target))
        return graph

    return torch.compile(function, fullgraph=True, backend=backend), operators


def check_all(arguments, check):
    """Calls check with each tuple of arguments. The error names the tuples that fail."""
    failures = []
    for values in arguments:
        try:
            check(*values)
        except (AssertionError, RuntimeError) as error:
            failures.append(f"{' '.join(map(str, values))}: {error}")
    assert not failures, "\n".join(failures)
