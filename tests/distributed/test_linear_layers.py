"""tcgemm.nn.Linear in torch's tools for several processes trains as torch.nn.Linear does there."""

import functools

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import SplitPoint, pipeline
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.nn.parallel import DistributedDataParallel

import tcgemm

from support import processes
from support.calls import Counter

X = torch.linspace(-1, 1, 24 * 16).reshape(24, 16)


def model_of(swap):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 36), nn.GELU(), nn.Linear(36, 20))
    if swap:
        assert len(tcgemm.swap_linear(model).swapped) == 2
    return model


def sharded(model, **options):
    for layer in (model[0], model[2], model):
        fully_shard(layer, **options)
    return model


def compiled(model):
    sharded(model)
    model.compile(backend="aot_eager")
    return model


def mixed(model):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return sharded(model, mp_policy=policy)


WRAPPERS = {
    "ddp": DistributedDataParallel,
    "fsdp1": functools.partial(FullyShardedDataParallel, device_id=torch.device("cpu")),
    "fsdp2": sharded,
    "fsdp2_compiled": compiled,
    "fsdp2_mixed": mixed,
}


def train(rank, kind, swap):
    model = WRAPPERS[kind](model_of(swap))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x, losses = X.chunk(2)[rank], []
    with Counter() as counter:
        for _ in range(4):
            loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert (counter.count > 0) is swap or kind == "fsdp2_compiled"
    return losses


@pytest.mark.parametrize("kind", WRAPPERS)
def test_training_is_that_of_torchs_layers(kind):
    ours, theirs = (processes.run(train, kind, swap) for swap in (True, False))
    assert theirs[0][-1] < theirs[0][0]
    tolerance = 1e-2 if kind == "fsdp2_mixed" else 1e-5
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=tolerance)


def save_and_load(rank, folder):
    model = sharded(model_of(True))
    expected = model(X)
    checkpoint.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)
    other = sharded(model_of(True))
    with torch.no_grad():
        for each in other.parameters():
            each.zero_()
    state = get_model_state_dict(other)
    checkpoint.load({"model": state}, checkpoint_id=folder)
    set_model_state_dict(other, state)
    return torch.equal(other(X), expected)


def test_a_distributed_checkpoint(tmp_path):
    assert processes.run(save_and_load, str(tmp_path)) == [True, True]


def mapped(rank):
    mesh = init_device_mesh("cpu", (2,))
    w = distribute_tensor(torch.linspace(0, 1, 20 * 16).reshape(20, 16), mesh, [Replicate()])
    x = distribute_tensor(X, mesh, [Shard(0)])
    linear = local_map(
        tcgemm.linear,
        out_placements=[Shard(0)],
        in_placements=([Shard(0)], [Replicate()]),
        device_mesh=mesh,
    )
    return torch.equal(linear(x, w).full_tensor(), tcgemm.linear(X, w.full_tensor()))


def test_local_map_of_dtensors():
    assert processes.run(mapped) == [True, True]


def test_the_tracer_of_pipelines_splits_a_model():
    model = model_of(True)
    pipe = pipeline(model, mb_args=(X[:12],), split_spec={"2": SplitPoint.BEGINNING})
    assert pipe.num_stages == 2
    stages = [pipe.get_stage_module(index) for index in range(2)]
    assert torch.equal(stages[1](stages[0](X[:12])), model(X[:12]))
