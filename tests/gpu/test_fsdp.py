"""FSDP2 on one GPU: its all-gather gives a weight other memory in each forward."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import tcgemm


@pytest.fixture
def group():
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.sm90
def test_nothing_is_prepared_and_no_bit_changes(group):
    model = torch.nn.Sequential(*(tcgemm.nn.Linear(512, 512, device="cuda") for _ in range(3)))
    model.eval()
    x = torch.randn(300, 512, device="cuda")
    with torch.no_grad():
        expected = model(x)
        assert all(layer.prepared is not None for layer in model)
        for layer in (*model, model):
            fully_shard(layer)
        used = []
        for _ in range(5):
            assert torch.equal(model(x), expected)
            assert all(layer.prepared is None for layer in model)
            used.append(torch.cuda.memory_allocated())
    assert used[1:] == used[:1] * 4
