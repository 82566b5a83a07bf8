"""Weights that a layer's kernel loads while the kernel before still runs.

The writers are the kernels that a wrong layer would overtake: tcgemm's own, which let the next
kernel start early, and torch's. Faults, and the tests that find them:

    the layer does not see a change      every writer, 1,000 times, eager, in graphs, in streams
    an operand's load is left out        the bits of the same kernel, for tiles, waves, clusters
                                         and slices
"""

import copy
import itertools

import pytest
import torch

import tcgemm
from tcgemm.nn import Linear, QuantLinear, SparseLinear24

from support import cases
from support.calls import early_calls
from support.cases import E4M3, E5M2, F16, F32, S8, each
from support.catalog_rows import (
    CLUSTERS,
    KINDS,
    asked,
    block_scales,
    kernel_name,
    kind_sizes,
    operands,
    rows,
)
from support.sparse_operands import compressed, made, multiply, options_of

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]
BF16 = torch.bfloat16
OPS = torch.ops.tcgemm
N, K = 4096, 2048
TIMES = 1000
SHAPES = ((4096, 4096), (6144, 1000), (1000, 72), (40, 16384), (28672, 512), (8192, 8192))
EIGHT = (S8, E4M3, E5M2)
few_and_many = pytest.mark.parametrize("m", [1, 16, 64, 100, 300, 2048])
activations = pytest.mark.parametrize("activation", [None, "gelu"])


def dense_layer(n=N, k=K, **options):
    return Linear(k, n, device="cuda", dtype=BF16, **options)


# name -> the layer
LAYERS = {
    "Linear": dense_layer,
    **{
        f"{dtype} {granularity}": lambda n=N, k=K, given=(dtype, granularity), **options: (
            QuantLinear.from_linear(dense_layer(n, k, **options), *given)
        )
        for dtype, granularity in ((S8, "row"), (E4M3, "tensor"), (E4M3, "128x128"))
    },
    "2:4": lambda n=N, k=K, **options: SparseLinear24.from_linear(dense_layer(n, k, **options)),
    "learns": lambda n=N, k=K, **options: SparseLinear24.from_linear(
        dense_layer(n, k, **options), learns=True
    ),
}


def layer_of(name="Linear", **options):
    return LAYERS[name](**options).eval().requires_grad_(False)


def whole(*shape):
    return torch.randint(-3, 4, shape, device="cuda").to(BF16)


@pytest.fixture
def early(monkeypatch):
    """The calls that load the weight early."""
    return early_calls(monkeypatch)


def assert_same(op, constant, *arguments, **options):
    expected = op(*arguments, **options)
    for _ in range(3):
        assert torch.equal(constant(*arguments, **options), expected)


# The operators.


@activations
@few_and_many
def test_bits_are_those_of_linear(m, activation):
    def check(n, k):
        x, w = torch.randn(m, k, device="cuda").to(BF16), torch.randn(n, k, device="cuda").to(BF16)
        bias = torch.randn(n, device="cuda").to(BF16)
        expected = tcgemm.linear(x, w, bias, activation=activation)
        for _ in range(3):
            assert torch.equal(OPS._constant_linear(x, w, bias, activation), expected)

    each(SHAPES, check)


@activations
@few_and_many
@pytest.mark.parametrize("dtype", EIGHT, ids=str)
def test_bits_are_those_of_scaled_mm(dtype, m, activation):
    """The operands of a QuantLinear."""

    def check(shape, granularity):
        n, k = shape
        x, w = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
        w8, scale_w = tcgemm.quantize(w, dtype, granularity)
        x8, scale_x = tcgemm.quantize(x, dtype, {"128x128": "1x128"}.get(granularity, granularity))
        bias = torch.randn(n, device="cuda").to(BF16)
        tensors = (x8, w8.t(), scale_x, scale_w.t(), None, bias)
        options = {"activation": activation, "out_dtype": BF16}
        assert_same(OPS.scaled_mm, OPS._constant_scaled_mm, *tensors, **options)

    granularities = ("row", "tensor", *(("128x128",) if dtype is not S8 else ()))
    each(itertools.product(SHAPES, granularities), check)


@few_and_many
@pytest.mark.parametrize("dtype", [BF16, F16, *EIGHT, F32], ids=str)
def test_bits_are_those_of_sparse_products(dtype, m):
    def check(n, k):
        w = made(n, k, dtype, device="cuda")
        x = torch.randn(m, k, device="cuda").mul(9).to(dtype)
        values, form = compressed(w)
        bias = None if dtype is S8 else torch.randn(n, device="cuda").to(BF16)
        if dtype is not F32:
            assert_same(OPS._linear24, OPS._constant_linear24, values, form, x, bias)
        options = {"precision": "high"} if dtype is F32 else {}
        options |= {"sparse_b": form, "bias": bias, "activation": None if dtype is S8 else "gelu"}
        assert_same(OPS.scaled_mm, OPS._constant_scaled_mm, x, values.t(), **options)

    each(SHAPES, check)


CHOSEN = ("whole", "waves", "ragged", "deep", "one_row", "one_k_block", "batch_whole")


def bits_of_row(row, kind, **division):
    """The product of one kernel, with b constant and without."""
    m, n, k = kind_sizes(kind, row)
    a, b = operands(*asked(row, "contiguous"), m, n, k, batch=kind.batch)
    options = {**row.types.options, **block_scales(row, m, n, k, step=len(kind.name))}
    options |= {"out_dtype": row.types.outs[0], "kernel_name": kernel_name(row, **division)}
    assert_same(OPS.scaled_mm, OPS._constant_scaled_mm, a, b, **options)


@rows(lambda row: row.tma)
def test_bits_of_every_kernel(row):
    kinds = [kind for kind in KINDS if kind.name in CHOSEN]
    each(((kind,) for kind in kinds), lambda kind: bits_of_row(row, kind))


@pytest.mark.parametrize("cluster", (2, 4))
@rows(lambda row: row.tma)
def test_bits_of_every_kernel_in_clusters(row, cluster):
    each(((kind,) for kind in CLUSTERS), lambda kind: bits_of_row(row, kind, cluster=cluster))


@pytest.mark.parametrize("cluster_adds", (False, True))
@rows(lambda row: row.divides_k)
def test_bits_of_every_kernel_in_slices(row, cluster_adds):
    if cluster_adds and not row.sums_in_cluster:
        pytest.skip("its clusters add no slices")
    kind = next(kind for kind in KINDS if kind.name == "deep")
    division = {"slices": 2, "cluster_adds": cluster_adds}
    bits_of_row(row, kind, **division)


@pytest.mark.parametrize("cluster", (0, 2, 4))
@rows(lambda row: row.tma, sparse=True)
def test_bits_of_every_sparse_kernel(row, cluster):
    """The sparse operand, values and metadata, is constant."""

    def check(kind):
        m, n, k = kind.sizes(*row.tile, row.stages)
        w = made(m, k, row.types.a, device="cuda")
        strides = "padded" if row.layout == "TN" else "transposed_padded"
        x = cases.make(strides, n, k, dtype=row.types.b, device="cuda")
        given = compressed(w)
        options = {**options_of(row.types), "kernel_name": kernel_name(row, cluster)}
        expected = multiply("b", w, x, given=given, **options)
        for _ in range(3):
            found = multiply("b", w, x, given=given, op=OPS._constant_scaled_mm, **options)
            assert torch.equal(found, expected)

    kinds = CLUSTERS if cluster else [kind for kind in KINDS if kind.name in CHOSEN]
    each(((kind,) for kind in kinds if not kind.batch), check)


# The layers.


@pytest.mark.parametrize("name", LAYERS)
def test_a_weight_that_does_not_change_is_constant(name, early):
    layer, x = layer_of(name), whole(16, K)
    with torch.no_grad():
        expected = copy.deepcopy(layer)(x)
        assert all(torch.equal(layer(x), expected) for _ in range(5))
    assert len(early) == (3 if isinstance(layer, SparseLinear24) else 4)


def test_other_calls_do_not_load_early(early):
    layer, x = layer_of(), whole(16, K)
    with torch.no_grad():
        layer(x[:0]), layer(x[:0])  # launch nothing
        layer(x)
    layer(x), layer.train()(x), layer.eval()
    with torch.no_grad():
        layer(x), copy.deepcopy(layer)(x)
        layer.prepare = False
        layer(x)
        layer.prepare = True
        with torch.autocast("cuda", dtype=torch.float16):
            layer(x)
        assert not early
        layer(x)
        assert len(early) == 1
        layer.float().bfloat16()(x)
        assert len(early) == 1


class Change:
    """Writes other values into the weight of a layer, by kernels right before the next call.

    It has three weights of small whole numbers: every sum is exact, and so are the steps of an
    optimizer.
    """

    def __init__(self, name):
        self.layer = layer_of(name, bias=False)
        self.dense = [whole(N, K) for _ in range(3)]
        self.identity = torch.eye(K, device="cuda", dtype=BF16)
        self.x = whole(16, K)
        kind = type(self.layer)
        if kind is QuantLinear:
            granularity, dtype = self.layer.granularity, self.layer.dtype
            self.eights = [tcgemm.quantize(w, dtype, granularity) for w in self.dense]
        if kind is SparseLinear24:  # the positions of one, and its values with other factors
            first = tcgemm.compress24(self.dense[0], prune=True)
            self.masked = [first, first.mul(2), first.mul(-1)]
            self.layer.load_state_dict({"weight": self.dense[0]})
        if kind is Linear or getattr(self.layer, "learns", False):
            self.layer.weight.copy_(self.dense[0])  # of whole numbers from the first step on
            self.optimizer = torch.optim.SGD([self.layer.weight.requires_grad_()], lr=1.0)
            self.layer.weight.grad = torch.empty_like(self.layer.weight)

    def target(self, i):
        """The dense weight i."""
        return self.masked[i].to_dense() if hasattr(self, "masked") else self.dense[i]

    def expected(self, write):
        """The results after write(0), write(1) and write(2), each of a layer of its own."""
        results = []
        for i in range(3):
            write(i)
            results.append(copy.deepcopy(self.layer)(self.x))
        return results

    # The writers. Their names are those of the tests.

    def copy_(self, i):
        layer = self.layer
        if isinstance(layer, QuantLinear):
            layer._buffers["weight"].copy_(self.eights[i][0].view(S8))
            layer.weight_scale.copy_(self.eights[i][1])
        elif isinstance(layer, SparseLinear24) and not layer.learns:
            layer.weight.copy_(self.masked[i])
        else:
            layer.weight.copy_(self.target(i))

    def values(self, i):
        self.layer.weight.values.copy_(self.masked[i].values)

    def tcgemm(self, i):
        """By a kernel that lets the next one start early."""
        layer = self.layer
        if isinstance(layer, QuantLinear):  # no product has an int8 result
            values, scale = self.eights[i]
            layer.weight_scale.copy_(scale)
            identity, options = self.identity.to(values.dtype).t(), {"out_dtype": values.dtype}
            tcgemm.mm(values, identity, out=layer.weight.values, **options)
        elif isinstance(layer, Linear) or layer.learns:
            tcgemm.mm(self.target(i), self.identity, out=layer.weight)
        else:
            values = self.masked[i].values
            tcgemm.mm(values, self.identity[: K // 2, : K // 2], out=layer.weight.values)

    def step(self, i):
        self.layer.weight.grad.copy_(self.layer.weight).sub_(self.target(i))
        self.optimizer.step()

    def load_state_dict(self, i):
        self.layer.load_state_dict({"weight": self.target(i)})

    def refresh(self, i):
        """Other positions, too."""
        self.layer.weight.copy_(self.dense[i])
        self.layer.refresh()


WRITERS = {
    "Linear": ("copy_", "tcgemm", "step", "load_state_dict"),
    **{name: ("copy_", "load_state_dict") for name in LAYERS if "torch." in name},
    **{f"{E4M3} {each}": ("copy_", "tcgemm", "load_state_dict") for each in ("tensor", "128x128")},
    "2:4": ("copy_", "values", "tcgemm", "load_state_dict"),
    "learns": ("copy_", "tcgemm", "step", "load_state_dict", "refresh"),
}


@pytest.mark.parametrize(
    "name, writer", [(name, writer) for name, writers in WRITERS.items() for writer in writers]
)
@torch.no_grad()
def test_a_change_right_before_a_call_is_seen(name, writer, early):
    change = Change(name)
    write, layer, x = getattr(change, writer), change.layer, change.x
    expected = change.expected(write)
    assert not torch.equal(expected[0], expected[1])
    early.clear()
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for time in range(TIMES):
        i = time % 3
        write(i)
        for _ in range(4):
            wrong += (layer(x) != expected[i]).sum()
    assert wrong.item() == 0
    assert 2 * TIMES <= len(early) <= 3 * TIMES


# name -> the writer whose kernels a graph contains
CAPTURED = {"Linear": "tcgemm", "2:4": "tcgemm"}
CAPTURED |= {name: "copy_" for name in LAYERS if "torch." in name}


@pytest.mark.parametrize("name", CAPTURED)
@torch.no_grad()
def test_a_change_in_a_graph_is_seen(name, early):
    change = Change(name)
    write, layer, x = getattr(change, CAPTURED[name]), change.layer, change.x
    expected = change.expected(write)
    given = source(change)  # what the graph reads in place of weight 0
    values = [tuple(each.clone() for each in source(change, i)) for i in range(3)]
    write(0)
    for _ in range(3):
        layer(x)
    torch.cuda.synchronize()
    early.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before = layer(x)
        write(0)
        found = [layer(x) for _ in range(3)]
    assert len(early) == 1  # `before`; a captured call is not the last one that ran
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for time in range(TIMES):
        i = time % 3
        for to, value in zip(given, values[i], strict=True):
            to.copy_(value)
        graph.replay()
        for result in found:
            wrong += (result != expected[i]).sum()
        if time > 0:
            wrong += (before != expected[(time - 1) % 3]).sum()
    assert wrong.item() == 0


def source(change, i=0):
    """The tensors that the writer of a graph reads for weight i."""
    if isinstance(change.layer, QuantLinear):
        values, scale = change.eights[i]
        return values.view(S8), scale
    return (change.masked[i].values if hasattr(change, "masked") else change.dense[i],)


# A kernel of tcgemm lets the next one start early, one of torch does not.
calls_after_writers = pytest.mark.parametrize(
    "name, writer",
    [
        ("Linear", "tcgemm"),
        (f"{S8} row", "copy_"),
        (f"{E4M3} tensor", "tcgemm"),
        (f"{E4M3} 128x128", "tcgemm"),
        ("2:4", "tcgemm"),
    ],
)


@calls_after_writers
@torch.no_grad()
def test_a_change_by_a_replay_is_read(name, writer, early):
    """A replay changes no version, but the kernel after a graph starts when the graph has ended."""
    change = Change(name)
    layer, x, write = change.layer, change.x, getattr(change, writer)
    expected = change.expected(write)
    values = [tuple(each.clone() for each in source(change, i)) for i in range(3)]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        write(0)
    graph.replay()
    for _ in range(3):
        layer(x)
    early.clear()
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for time in range(TIMES):
        i = time % 3
        for to, value in zip(source(change), values[i], strict=True):
            to.copy_(value)
        graph.replay()
        wrong += (layer(x) != expected[i]).sum()
    assert wrong.item() == 0
    assert len(early) == TIMES


@calls_after_writers
@torch.no_grad()
def test_a_change_before_a_replay_is_seen(name, writer, early):
    """The graph has the layer alone, and loads the weight early."""
    change = Change(name)
    layer, x, write = change.layer, change.x, getattr(change, writer)
    expected = change.expected(write)
    for _ in range(3):
        layer(x)
    torch.cuda.synchronize()
    early.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [layer(x) for _ in range(3)]
    assert len(early) == 3
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for time in range(TIMES):
        write(time % 3)
        graph.replay()
        for result in found:
            wrong += (result != expected[time % 3]).sum()
    assert wrong.item() == 0


@calls_after_writers
@torch.no_grad()
def test_a_call_in_another_stream_is_not_the_last(name, writer, early):
    """After a write, the call in the other stream has waited for it. The kernel before the next
    call in this stream is still the write."""
    change = Change(name)
    layer, x, write = change.layer, change.x, getattr(change, writer)
    expected = change.expected(write)
    early.clear()
    this, other = torch.cuda.current_stream(), torch.cuda.Stream()
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for time in range(TIMES):
        i = time % 3
        write(i)
        other.wait_stream(this)
        with torch.cuda.stream(other):
            results = [layer(x)]
        results.append(layer(x))
        this.wait_stream(other)
        for result in results:
            wrong += (result != expected[i]).sum()
    assert wrong.item() == 0
    assert not early


@pytest.mark.parametrize("name", ["Linear", f"{S8} row", "2:4"])
@torch.no_grad()
def test_a_new_weight_in_the_memory_of_the_last_is_seen(name, early):
    """A caching allocator gives the memory of a freed weight to the next one, and both have the
    lowest version."""
    change = Change(name)
    layer, x = change.layer, change.x
    expected = change.expected(change.copy_)
    early.clear()
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for time in range(TIMES):
        i = time % 3
        if name == "Linear":
            layer.weight = None
            weight = torch.mul(change.dense[i], 1)
            layer.weight = torch.nn.Parameter(weight, requires_grad=False)
        elif name == "2:4":
            layer.weight = change.masked[i].mul(1)
        else:
            layer._buffers["weight"] = None
            layer._buffers["weight"] = change.eights[i][0].view(S8).clone()
            layer.weight_scale = change.eights[i][1].clone()
        wrong += (layer(x) != expected[i]).sum()
    assert wrong.item() == 0
    assert not early
