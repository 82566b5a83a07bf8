"""PackedLinear under DistributedDataParallel and fully_shard, and packed_mm of DTensors."""

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import tcgemm
from tcgemm.nn import PackedLinear
from tcgemm.ops.dtensor import full_tensor

from support import processes, sharding
from support.error_asserts import error_message
from support.packed_weight_cases import bits
from support.processes import in_processes
from support.sharding import shard

R, S0, S1 = Replicate(), Shard(0), Shard(1)
formats = pytest.mark.parametrize("format", ["int4", "e4m3", "nvfp4"])


def model_of(seed, format):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 128), nn.Linear(128, 32), nn.Linear(32, 4)).bfloat16()
    tcgemm.swap_linear(model, "1", to=PackedLinear, format=format)
    return model.to(processes.device())


def ones():
    return torch.ones(3, 16, device=processes.device()).bfloat16()


@formats
@in_processes
def test_ddp_sends_the_packed_weights(rank, format):
    sharding.with_ddp(rank, lambda seed: model_of(seed, format), ones())


@formats
@in_processes
def test_fully_shard_shards_the_bias_alone(rank, format):
    model, expected = model_of(0, format), model_of(0, format)
    shard(model, mesh=processes.mesh())
    assert processes.same(model(ones()), expected(ones()))
    model(ones()).sum().backward()
    state = model.state_dict()
    for name, tensor in expected.state_dict().items():
        full = full_tensor(state[name])
        assert full.dtype is tensor.dtype and torch.equal(bits(full), bits(tensor))


@in_processes
def test_rows_of_a_product_are_sharded(rank):
    devices = processes.mesh()
    torch.manual_seed(0)
    packed = tcgemm.pack_weight(torch.randn(48, 128).half(), "int4", 32).to(processes.device())
    x = torch.randint(-2, 3, (8, 128)).half().to(processes.device())
    bias, rows = torch.ones(48).to(x.device), torch.ones(8, 1).to(x.device)
    expected = tcgemm.linear(x, packed, bias, residual=rows)
    order = distribute_tensor(packed.arranged(), devices, [R])
    words = packed.order._asdict()
    _, largest = tcgemm.linear(x, packed, bias, residual=rows, amax=True)
    for placement, result in ((R, R), (S0, S0), (S1, R)):
        a = distribute_tensor(x, devices, [placement])
        addends = [distribute_tensor(tensor, devices, [R]) for tensor in (bias, rows)]
        out = torch.ops.tcgemm.packed_mm.default(a, order, None, *addends, **words)
        assert isinstance(out, DTensor) and out.placements == (result,)
        assert torch.equal(out.full_tensor(), expected)
        product, amax = torch.ops.tcgemm.packed_mm_amax(a, order, None, *addends, **words)
        assert torch.equal(product.full_tensor(), expected)
        assert torch.equal(amax.full_tensor(), largest)
    assert error_message(lambda: tcgemm.linear(distribute_tensor(x, devices, [S0]), packed)) == (
        "tcgemm.linear: a tensor is a DTensor, but weight is a PackedWeight, which is none; pass "
        "to_local() of a DTensor that is sharded by rows, or full_tensor()."
    )


@in_processes
def test_rows_of_a_weight_are_packed_where_they_are(rank):
    devices = processes.mesh()
    torch.manual_seed(0)
    w = torch.randn(48, 128).to(processes.device())
    for zeros in (False, True):
        rules = ("int4", 32, 7.0, "float32", zeros)
        expected = torch.ops.tcgemm._pack_weight(w, None, None, *rules)
        for placement, result in ((R, R), (S0, S0), (S1, R)):
            results = torch.ops.tcgemm._pack_weight(
                distribute_tensor(w, devices, [placement]), None, None, *rules
            )
            for result_part, exact in zip(results, expected, strict=True):
                assert torch.equal(result_part.full_tensor(), exact)
            assert results[0].placements == results[1].placements == (result,)
