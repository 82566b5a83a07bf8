"""tcgemm.nn.QuantLinear under DistributedDataParallel and fully_shard, in two processes."""

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

import tcgemm
from tcgemm.nn import QuantLinear
from tcgemm.ops.dtensor import full_tensor

from support import processes, sharding
from support.processes import in_processes
from support.sharding import shard

dtypes = pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])


def model_of(seed, dtype):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 36), nn.Linear(36, 20), nn.Linear(20, 4))
    tcgemm.swap_linear(model, lambda _, name: name != "0", to=QuantLinear, dtype=dtype)
    return model.to(processes.device())


def ones(columns=16):
    return torch.ones(3, columns, device=processes.device())


@dtypes
@in_processes
def test_ddp_sends_the_8_bit_weights(rank, dtype):
    sharding.with_ddp(rank, lambda seed: model_of(seed, dtype), ones())


@dtypes
@pytest.mark.parametrize("mixed", [False, True])
@in_processes
def test_fully_sharded_weights(rank, dtype, mixed):
    mesh = processes.mesh()
    model, expected = model_of(0, dtype), model_of(0, dtype)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if mixed else MixedPrecisionPolicy()
    shard(model, mesh=mesh, mp_policy=policy)
    x = ones()
    reference = expected.bfloat16() if mixed else expected
    assert processes.same(model(x), reference(x.bfloat16() if mixed else x))
    model(x).sum().backward()
    state = model.state_dict()
    assert isinstance(state["1.bias"], DTensor)
    for name, tensor in model_of(0, dtype).state_dict().items():
        full = full_tensor(state[name])
        assert full.dtype is tensor.dtype and torch.equal(full.float(), tensor.float())
    twin = shard(model_of(1, dtype), mesh=mesh, mp_policy=policy)
    twin.load_state_dict(state)
    assert torch.equal(twin(x), model(x))


@in_processes
def test_a_dtensor_as_x(rank):
    x = distribute_tensor(ones(36), processes.mesh(), [Replicate()])
    here = processes.device()
    for layer in (QuantLinear(36, 20, device=here), tcgemm.nn.SparseLinear24(36, 20, device=here)):
        with pytest.raises(RuntimeError, match=r"tcgemm\.nn\.\w*: x is a DTensor, but"):
            layer(x)
