"""The recipes for several processes, and their limits, in two processes.

The pages are docs/recipes/ddp.md, docs/recipes/fsdp2.md and docs/recipes/tensor-parallel.md.
"""

import copy
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import tcgemm
from tcgemm.integrations.tensor_parallel import ColwiseParallel as OurColwise
from tcgemm.nn import QuantLinear, SparseLinear24

from support import pages, processes
from support.processes import in_cpu_processes
from support.sharding import shard


def run_page(rank, page):
    """The processes of the tests have a group already; torchrun's have none."""
    with (
        mock.patch.object(dist, "init_process_group") as begin,
        mock.patch.object(dist, "destroy_process_group") as end,
    ):
        names = pages.run(f"docs/recipes/{page}")
    assert begin.call_count == end.call_count == 1
    return names.get("losses")


def test_ddp():
    for losses in processes.run(run_page, "ddp.md"):
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("page", ["fsdp2.md", "tensor-parallel.md"])
def test_page(page):
    processes.run(run_page, page)


def model_of(to=tcgemm.nn.Linear, **options):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 36), nn.Linear(36, 20))
    tcgemm.swap_linear(model, to=to, **options)
    return model


@in_cpu_processes
def test_a_swap_after_ddp(rank):
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 36), nn.Linear(36, 20)))
    assert len(tcgemm.swap_linear(model).swapped) == 2
    model(torch.ones(3, 16)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 36), nn.Linear(36, 20)))
    tcgemm.swap_linear(model, "module.1", to=QuantLinear)
    model(torch.ones(3, 16)).sum().backward()
    with pytest.raises(RuntimeError, match="Expected to have finished reduction"):
        model(torch.ones(3, 16)).sum().backward()


@in_cpu_processes
def test_the_state_of_sparse_layers_under_ddp(rank):
    model = DistributedDataParallel(model_of(SparseLinear24))
    state = get_model_state_dict(model)
    with pytest.raises(RuntimeError, match=r'Missing key.*"module.0.weight.values"'):
        set_model_state_dict(model, dict(state))
    set_model_state_dict(model.module, state)


@in_cpu_processes
def test_dtypes_that_torch_refuses(rank):
    """They are torch's: Parameters of integers, and float8 over gloo. Newer ones of torch take the
    integers in fully_shard."""
    integers = nn.Linear(16, 16)
    integers.weight = nn.Parameter(torch.ones(16, 16, dtype=torch.int8), requires_grad=False)
    try:
        fully_shard(copy.deepcopy(integers))
    except (RuntimeError, ValueError) as error:
        assert "only Tensors of floating point dtype" in str(error)
    with pytest.raises(ValueError, match="Cannot flatten integer dtype tensors"):
        FullyShardedDataParallel(integers, device_id=torch.device("cpu"))
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    model = shard(model_of(QuantLinear, dtype=torch.float8_e4m3fn))
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    with pytest.raises(RuntimeError, match="Invalid scalar type"):
        set_model_state_dict(model, state if rank == 0 else {}, options=options)


@in_cpu_processes
def test_mixed_precision_of_frozen_sparse_layers(rank):
    """The policy casts Parameters, and the weight of a frozen sparse layer is a buffer."""
    model = model_of(SparseLinear24)
    x = torch.ones(3, 16)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"weight is torch.float32, but x is torch.bfloat16"):
        shard(model, mp_policy=policy)(x)
    model = model_of(SparseLinear24)
    for layer in model:
        layer.weight = layer.weight.to(torch.bfloat16)
    out = shard(model, mp_policy=policy)(x)
    assert out.dtype is torch.bfloat16 and model[0].bias.dtype is torch.float32


@in_cpu_processes
def test_get_model_state_dict_takes_every_layer(rank):
    for to in (tcgemm.nn.Linear, QuantLinear):
        model = shard(model_of(to))
        assert get_model_state_dict(model).keys() == model.state_dict().keys()
    for options in ({"learns": True}, {}):
        model = shard(model_of(SparseLinear24, **options))
        assert "0.weight.metadata" in get_model_state_dict(model)
        assert get_model_state_dict(model).keys() == model.state_dict().keys()


@in_cpu_processes
def test_swaps_of_sharded_models(rank):
    reason = "is sharded, as a FSDPLinear; swap before fully_shard"
    model = shard(nn.Sequential(nn.Linear(16, 36), nn.Linear(36, 20)))
    assert tcgemm.swap_linear(model).skipped == {"0": reason, "1": reason}
    model = nn.Sequential(nn.Linear(16, 36), nn.Linear(36, 20))
    report = tcgemm.swap_linear(model)
    shard(model)
    with pytest.raises(RuntimeError, match=r"nothing is undone.*fully_shard after undo"):
        report.undo()


@in_cpu_processes
def test_limits_of_tensor_parallelism(rank):
    mesh = init_device_mesh("cpu", (2,))
    for to in (QuantLinear, SparseLinear24):
        with pytest.raises(NotImplementedError, match="ColwiseParallel currently only support"):
            parallelize_module(model_of(to), mesh, {"0": ColwiseParallel()})
        model = parallelize_module(model_of(to), mesh, {"0": SequenceParallel()})
        with pytest.raises(RuntimeError, match=r"x is a DTensor, but the weight is not; make the"):
            model(torch.ones(1, 4, 16))
        model = nn.Sequential(nn.Linear(16, 36))
        parallelize_module(model, mesh, {"0": ColwiseParallel()})
        reason = "has weights of DTensor; swap before fully_shard or parallelize_module"
        assert tcgemm.swap_linear(model, to=to).skipped == {"0": reason}
    for layer in (tcgemm.nn.Conv1D(16, 16), tcgemm.nn.MultiheadAttention(16, 2)):
        with pytest.raises(NotImplementedError, match="ColwiseParallel currently only support"):
            parallelize_module(layer, mesh, OurColwise())
    x = distribute_tensor(torch.ones(4, 16), mesh, [Replicate()])
    for to in (QuantLinear, SparseLinear24):
        with pytest.raises(RuntimeError, match=r"x is a DTensor, but the weight is not; make"):
            model_of(to)(x)
