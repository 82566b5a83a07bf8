"""tcgemm.nn.Linear in torch's tools for several processes trains as torch.nn.Linear does there."""

import pytest
from torch import nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map

import tcgemm

from support import processes
from support.calls import Counter
from support.sharding import WRAPPERS, batch, losses_of, model_of


def train(rank, wrapper, uses_tcgemm):
    """The losses of one process's part of the batch; the other layers are torch's, or ours too."""
    model = model_of("linear")
    if uses_tcgemm:
        assert len(tcgemm.swap_linear(model).swapped) == 2
    else:
        tcgemm.swap_linear(model, to=nn.Linear)
    with Counter() as counter:
        losses, _ = losses_of(WRAPPERS[wrapper](model), *batch(rank))
    assert (counter.count > 0) is uses_tcgemm or "compiled" in wrapper
    return losses


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_training_is_that_of_torchs_layers(wrapper, device):
    curve, exact = (
        processes.run(train, wrapper, uses_tcgemm, device=device) for uses_tcgemm in (True, False)
    )
    assert exact[0][-1] < exact[0][0]
    tolerance = 1e-2 if wrapper == "fsdp2_mixed" else {"cpu": 1e-5, "cuda": 1e-4}[device]
    for loss, limit in zip(curve, exact, strict=True):
        assert loss == pytest.approx(limit, rel=tolerance)


def mapped(rank):
    mesh = processes.mesh()
    x, target = batch()
    w = distribute_tensor(target.t() @ x, mesh, [Replicate()])
    linear = local_map(
        tcgemm.linear,
        out_placements=[Shard(0)],
        in_placements=([Shard(0)], [Replicate()]),
        device_mesh=mesh,
    )
    result = linear(distribute_tensor(x, mesh, [Shard(0)]), w).full_tensor()
    return processes.same(result, tcgemm.linear(x, w.full_tensor()))


def test_local_map_of_dtensors(device):
    assert processes.run(mapped, device=device) == [True, True]
