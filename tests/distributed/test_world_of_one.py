"""Every layer under every tool in a world of one process: the bits are those without the tool."""

import pytest
import torch
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import parallelize_module

from tcgemm.integrations.tensor_parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
)

from support import processes
from support.sharding import LAYERS, WRAPPERS, batch, losses_of, model_of

STYLES = {
    "columns": lambda: ColwiseParallel(),
    "rows": lambda: RowwiseParallel(input_layouts=Replicate()),
    "sequence": lambda: SequenceParallel(sequence_dim=0, use_local_output=True),
}


def train(rank, kind):
    assert torch.distributed.get_world_size() == 1
    expected, exact = losses_of(model_of(kind), *batch())
    assert expected[-1] < expected[0]
    for tool in ("ddp", "fsdp2"):
        losses, results = losses_of(WRAPPERS[tool](model_of(kind)), *batch())
        assert losses == expected and all(map(torch.equal, results, exact)), tool
    for style in STYLES.values():
        model = parallelize_module(model_of(kind), processes.mesh(), {"2": style()})
        losses, results = losses_of(model, *batch())
        # torch's operators sum the gradient of a bias that is a DTensor.
        near = 1e-5 if kind == "linear" else 0
        torch.testing.assert_close((losses, results), (expected, exact), rtol=near, atol=near)


@pytest.mark.parametrize("kind", LAYERS)
def test_one_process(kind):
    processes.run(train, kind, world=1)
