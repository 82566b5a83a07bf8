"""A layer reads the weight that the kernel before it writes, also if torch counts no change of it.

The faults that these tests find: a layer's kernel loads the weight while a kernel that writes it
still runs; a device order is loaded before the pass that makes it has ended.
"""

import copy

import pytest
import torch

from tcgemm.nn import Linear, PackedLinear, QuantLinear, SparseLinear24

from support import cases
from support.cases import BF16, E4M3, S8
from support.slow_writer import IS_BUILT, SlowWriter

N, K = 64, 128
REPEATS = 40
REPLAYS = 10

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.sm90,
    pytest.mark.skipif(not IS_BUILT, reason="this build has not the kernel that writes slowly"),
]


def dense():
    return Linear(K, N, device="cuda", dtype=BF16)


def eight(dtype, granularity):
    return lambda: QuantLinear.from_linear(dense(), dtype, granularity)


# name -> (makes the layer, the tensor of its weight that is written, does torch count the writes?)
# A layer with a copy of its weight in another form notices only changes that torch counts.
LAYERS = {
    "Linear": (dense, lambda layer: layer.weight, False),
    **{
        f"{dtype} {granularity}": (
            eight(dtype, granularity),
            lambda layer: layer._buffers["weight"],
            False,
        )
        for dtype, granularity in ((S8, "row"), (E4M3, "tensor"), (E4M3, "128x128"))
    },
    "2:4": (
        lambda: SparseLinear24.from_linear(dense()),
        lambda layer: layer.weight.values,
        False,
    ),
    "2:4 learns": (
        lambda: SparseLinear24.from_linear(dense(), learns=True),
        lambda layer: layer.weight,
        True,
    ),
    "int4": (
        lambda: PackedLinear.from_linear(dense(), "int4", group_size=64),
        lambda layer: layer._buffers["codes"],
        True,
    ),
}


class Written:
    """A layer, a slow writer of its weight, and the results with both weights."""

    def __init__(self, name, rows):
        make, stored, self.counted = LAYERS[name]
        self.layer = make().eval().requires_grad_(False)
        self.x = torch.randint(-3, 4, (rows, K), device="cuda").to(BF16)
        self.tensor = stored(self.layer)
        as_bytes = self.tensor.data.view(torch.uint8)
        # Each pair of these bytes is a positive bfloat16.
        values = torch.randint(1, 60, (2, as_bytes.numel()), device="cuda", dtype=torch.uint8)
        self.expected = []
        for value in values:
            as_bytes.copy_(value.view_as(as_bytes))
            torch.autograd.graph.increment_version(self.tensor)
            torch.cuda.synchronize()
            self.expected.append(copy.deepcopy(self.layer)(self.x))
        assert not torch.equal(*self.expected)
        self.writer = SlowWriter(as_bytes.view(-1).view(BF16).view(1, -1), values.view(BF16))

    def write(self, index):
        self.writer.write(index)
        if self.counted:
            torch.autograd.graph.increment_version(self.tensor)

    def settle(self):
        """After some calls the weight has been the same for a while."""
        for _ in range(4):
            self.layer(self.x)
        torch.cuda.synchronize()


every_layer = pytest.mark.parametrize("name", LAYERS)
few_and_many = pytest.mark.parametrize("rows", [4, 100])


@every_layer
@few_and_many
@torch.no_grad()
def test_a_write_right_before_a_call_is_seen(name, rows):
    case = Written(name, rows)
    case.settle()
    cases.spin(10)  # the host launches all kernels meanwhile
    results = []
    for i in range(REPEATS):
        case.write(i % 2)
        results.append(case.layer(case.x))
    for i, result in enumerate(results):
        assert torch.equal(result, case.expected[i % 2])


@every_layer
@few_and_many
@torch.no_grad()
def test_a_write_in_a_graph_is_seen(name, rows):
    case = Written(name, rows)
    case.settle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = []
        for i in range(2):
            case.write(i)
            results.append(case.layer(case.x))
    for _ in range(REPLAYS):
        for result in results:
            result.zero_()
        graph.replay()
        for result, expected in zip(results, case.expected, strict=True):
            assert torch.equal(result, expected)
