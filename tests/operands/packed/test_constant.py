"""Products whose kernel loads the packed weight before the kernel before it has ended.

The device order of a weight is complete when it is kept, and nothing writes it again. So a product
with a kept order says constant_b, and any other product does not.
"""

import pytest
import torch
from torch._dynamo.testing import EagerAndRecordGraphs

import tcgemm

from support.calls import Recorder
from support.packed_weight_cases import Case, with_exact_elements

OPS = torch.ops.tcgemm
N, K = 4096, 2048
TIMES = 300


def constants(call):
    """The argument constant_b of each packed_mm."""
    products = (OPS.packed_mm.default, OPS.packed_mm.out, OPS.packed_mm_amax.default)

    def constant(func, args, kwargs):
        return [kwargs.get("constant_b", False)] if func in products else []

    with Recorder(constant) as recorder:
        call()
    return recorder.rows


def test_a_kept_order_is_constant():
    packed = tcgemm.pack_weight(torch.randn(48, 128).half(), "int4", 32)
    x = torch.randn(3, 128).half()
    for call in (
        lambda: tcgemm.linear(x, packed),
        lambda: tcgemm.mm(x, packed.t(), out=torch.empty(3, 48).half()),
        lambda: tcgemm.linear(x, packed, amax=True),
        lambda: tcgemm.linear(x, packed, scale_out=torch.tensor(2.0)),
        lambda: tcgemm.linear(x.clone().requires_grad_(), packed, activation="relu").sum(),
    ):
        packed.arranged()
        assert constants(call) == [True]
    packed.codes[3, 5] ^= 1  # the next product makes the order again
    assert torch.equal(tcgemm.linear(x, packed), tcgemm.mm(x, packed.dequantize().t()))
    assert constants(lambda: tcgemm.linear(x, packed)) == [True]
    layer = tcgemm.nn.PackedLinear.from_packed(packed)
    layer(x)
    assert constants(lambda: layer(x)) == [True]


def test_an_order_that_is_not_kept_is_not_constant(monkeypatch):
    packed = tcgemm.pack_weight(torch.randn(48, 128).half(), "int4", 32)
    x = torch.randn(3, 128).half()
    order = packed.arranged()
    packed.stored.form.forget()
    with monkeypatch.context() as patch:
        patch.setattr(type(packed.stored), "arranged", lambda stored: order)
        assert constants(lambda: tcgemm.linear(x, packed)) == [False]
    backend = EagerAndRecordGraphs()
    torch.compile(lambda x: tcgemm.linear(x, packed), fullgraph=True, backend=backend)(x)
    nodes = [node for graph in backend.graphs for node in graph.graph.nodes]
    products = [node for node in nodes if "packed_mm" in str(node.target)]
    assert products and not any("constant_b" in node.kwargs for node in products)


KINDS = (Case("int4", 128), Case("int4", 32, "points"), Case("nf4", 64), Case("int8", None))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 8, 16, 40, 128, 600])
@pytest.mark.parametrize("case", KINDS, ids=str)
def test_bits_are_those_without_it(case, rows):
    for n, k in ((4096, 4096), (28672, 512), (1000, 128), (40, 16384)):
        packed = case.pack(torch.randn(n, k, device="cuda"))
        x = torch.randn(rows, k, device="cuda").bfloat16()
        words = packed.order._asdict()
        expected = OPS.packed_mm(x, packed.arranged(), **words)
        for _ in range(5):
            assert torch.equal(
                OPS.packed_mm(x, packed.arranged(), constant_b=True, **words), expected
            )


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_the_input_is_what_the_kernel_before_wrote(rows):
    """A chain of products, each of which reads the result of the one before."""
    weights = [
        with_exact_elements(tcgemm.pack_weight(torch.randn(K, K, device="cuda").half(), "int4", 64))
        for _ in range(4)
    ]
    x = torch.randint(-1, 2, (rows, K), device="cuda").half()
    results = [x]
    for weight in weights:
        results.append(tcgemm.linear(results[-1].sign(), weight))
        torch.cuda.synchronize()
    for _ in range(TIMES):
        y = x
        for weight in weights:
            y = tcgemm.linear(y.sign(), weight)
        assert torch.equal(y, results[-1])


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_a_weight_that_changes_before_the_product(rows):
    packed = tcgemm.pack_weight(torch.randn(N, K, device="cuda").half(), "int4", 128)
    codes = [torch.randint(0, 256, packed.codes.shape, device="cuda").byte() for _ in range(2)]
    x = torch.randn(rows, K, device="cuda").half()
    expected = []
    for tensor in codes:
        packed.codes.copy_(tensor)
        expected.append(tcgemm.linear(x, packed))
        torch.cuda.synchronize()
    assert not torch.equal(*expected)
    for i in range(TIMES):
        packed.codes.copy_(codes[i % 2])
        assert torch.equal(tcgemm.linear(x, packed), expected[i % 2])


@pytest.mark.gpu
def test_graphs_and_streams():
    packed = tcgemm.pack_weight(torch.randn(N, K, device="cuda").half(), "int4", 128)
    x = torch.randn(4, K, device="cuda").half()
    expected = tcgemm.linear(x, packed)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert torch.equal(tcgemm.linear(x, packed), expected)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    out = torch.empty_like(expected)
    with torch.cuda.graph(graph):
        for _ in range(3):
            tcgemm.linear(x, packed, out=out)
    for _ in range(TIMES):
        x.normal_()
        graph.replay()
        assert torch.equal(out, tcgemm.linear(x, packed))


@pytest.mark.gpu
def test_a_graph_loads_no_order_early_that_it_makes():
    packed = tcgemm.pack_weight(torch.randn(N, K, device="cuda").half(), "int4", 128)
    codes, x = packed.codes.bitwise_not(), torch.randn(4, K, device="cuda").half()
    tcgemm.linear(x, packed)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert constants(lambda: tcgemm.linear(x, packed)) == [True]
        packed.codes.copy_(codes)
        assert constants(lambda: tcgemm.linear(x, packed)) == [False]
