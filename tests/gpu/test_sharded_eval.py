"""tcgemm.nn.Linear under fully_shard on one GPU: eval mode prepares nothing."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import tcgemm

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_eval_prepares_nothing(process_group, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).cuda().eval()
    tcgemm.swap_linear(model)
    x = torch.randn(512, 1024, device="cuda")
    with torch.no_grad():
        expected = model(x)
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        calls = []
        monkeypatch.setattr(tcgemm.nn.linear, "prepared_in", lambda *_, **__: calls.append(_))
        used = []
        for _ in range(4):
            assert torch.equal(model(x), expected)
            used.append(torch.cuda.memory_allocated())
        assert used[1:] == used[:1] * 3
    assert not calls and model[0].prepared is None


def test_sparse_layers_see_new_weights(process_group):
    model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 64)).bfloat16().cuda()
    tcgemm.swap_linear(model, to=tcgemm.nn.SparseLinear24, learns=True, refresh_every=1)
    for layer in (*model, model):
        fully_shard(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        with torch.no_grad():
            before = [model.eval()(x) for _ in range(2)]
        assert torch.equal(*before)
        model(x).float().square().sum().backward()  # in eval mode, where prepared calls are kept
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            assert not torch.equal(model(x), before[0])
        model.train()(x)
    assert model[0]._changes == 2
