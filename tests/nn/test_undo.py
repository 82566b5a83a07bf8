"""undo() takes everything back or says why not; swap_linear(to=torch.nn.Linear) needs no report."""

import pickle

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tcgemm

X = torch.linspace(-1, 1, 5 * 8).reshape(5, 8)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def kinds(module):
    return [type(child).__name__ for child in module]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x):
        return self.attention(x, x, x)[0]


def test_out_of_order():
    net = model()
    first = tcgemm.swap_linear(net)
    second = tcgemm.swap_linear(net, to=tcgemm.nn.QuantLinear)
    with pytest.raises(
        RuntimeError,
        match=r"SwapReport.undo: nothing is undone, because 2 of 2 .* 0 is a QuantLinear now; 2 is",
    ):
        first.undo()
    assert kinds(net) == ["QuantLinear", "ReLU", "QuantLinear"]
    second.undo()
    first.undo()  # is not lost
    assert type(net[0]) is nn.Linear
    first.undo()


@pytest.fixture
def mesh():
    """One process. Without a mesh of CPUs, fully_shard moves the layers to a GPU that is there."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_sharded_after_the_swap(mesh):
    net = model()
    report = tcgemm.swap_linear(net)
    fully_shard(net[0], mesh=mesh)
    with pytest.raises(RuntimeError, match="1 of 2 modules cannot go back: 0 is a FSDPLinear now"):
        report.undo()
    assert type(net[2]) is tcgemm.nn.Linear  # all or nothing
    back = tcgemm.swap_linear(net, to=nn.Linear)
    assert back.swapped == ["2"]
    assert back.skipped == {"0": "is sharded, as a FSDPLinear; swap before fully_shard"}
    assert net(X).shape == (5, 4)


def test_sharded_before_the_swap(mesh):
    net = model()
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    expected = net(X)  # leaves the weight of net[2] whole, as a plain Parameter
    quantised = tcgemm.swap_linear(net, to=tcgemm.nn.QuantLinear)
    assert not quantised.swapped and quantised.skipped == {
        "0": "is sharded, as a FSDPLinear; swap before fully_shard",
        "2": "is sharded in a FSDPSequential; swap before it is sharded",
    }
    assert tcgemm.swap_linear(net).swapped == ["2"]  # its Parameters stay
    torch.testing.assert_close(net(X), expected)


def test_distributed_weights(mesh):
    net = nn.Sequential(nn.Linear(8, 8))
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    net[0].weight = nn.Parameter(torch.distributed.tensor.distribute_tensor(net[0].weight, mesh))
    for to in (tcgemm.nn.QuantLinear, tcgemm.nn.SparseLinear24):
        assert tcgemm.swap_linear(net, to=to).skipped == {
            "0": "has weights of DTensor; swap before fully_shard or parallelize_module"
        }
    assert tcgemm.swap_linear(net).swapped == ["0"]


@pytest.mark.parametrize(
    "options",
    [
        {"to": tcgemm.nn.Linear},
        {"to": tcgemm.nn.QuantLinear, "dtype": torch.int8},
        {"to": tcgemm.nn.SparseLinear24},
        {"to": tcgemm.nn.SparseLinear24, "learns": True},
    ],
    ids=str,
)
def test_way_back_from_a_pickle(options):
    net = model()
    state = list(net.state_dict())
    tcgemm.swap_linear(net, **options)
    expected = net(X)
    net = pickle.loads(pickle.dumps(net))
    report = tcgemm.swap_linear(net, to=nn.Linear)
    assert report.swapped == ["0", "2"] and kinds(net) == ["Linear", "ReLU", "Linear"]
    assert type(net[0]) is nn.Linear and vars(net[0]).keys() == vars(nn.Linear(1, 1)).keys()
    assert list(net.state_dict()) == state and not list(net.buffers())
    assert isinstance(net[0].weight, nn.Parameter) and net[0].weight.requires_grad
    torch.testing.assert_close(net(X), expected, rtol=0.05, atol=0.05)
    net(X).sum().backward()
    report.undo()
    assert type(net[0]) is options["to"] and torch.equal(net(X), expected)


def test_way_back_keeps_parameters_where_it_can():
    net = model()
    parameters = list(net.parameters())
    tcgemm.swap_linear(net)
    tcgemm.swap_linear(net, to=nn.Linear)
    assert all(one is other for one, other in zip(net.parameters(), parameters, strict=True))
    tcgemm.swap_linear(net, to=tcgemm.nn.SparseLinear24)
    tcgemm.swap_linear(net, to=nn.Linear)
    assert net[0].bias is parameters[1] and net[0].weight is not parameters[0]


def test_way_back_names_its_dtype_and_what_stays():
    net = nn.Sequential(
        nn.Linear(8, 8, bias=False).bfloat16(), tcgemm.nn.Linear(8, 8, activation="relu")
    )
    tcgemm.swap_linear(net, "0", to=tcgemm.nn.QuantLinear)
    report = tcgemm.swap_linear(net, to=nn.Linear, dtype=torch.bfloat16)
    assert net[0].weight.dtype is torch.bfloat16
    assert report.skipped == {"1": "has the fused activation 'relu', but torch.nn.Linear has none"}


def test_way_back_of_attention_goes_with_its_projection():
    net = Attention()
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    x = torch.randn(3, 8)
    expected = net(x)
    before = type(net.attention.out_proj)
    tcgemm.swap_linear(net)
    report = tcgemm.swap_linear(net, to=nn.Linear, skip="*.out_proj")
    assert not report.swapped
    assert "out_proj that stays a Linear" in report.skipped["attention"]
    report = tcgemm.swap_linear(net, to=nn.Linear)
    assert report.swapped == ["attention", "attention.out_proj"]
    assert type(net.attention) is nn.MultiheadAttention
    assert type(net.attention.out_proj) is before
    assert torch.equal(net(x), expected)
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, state[name])
    report.undo()
    assert type(net.attention) is tcgemm.nn.MultiheadAttention


def test_attention_does_not_go_back_before_its_projection():
    net = Attention()
    first = tcgemm.swap_linear(net, skip="*.out_proj")
    second = tcgemm.swap_linear(net, "*.out_proj", to=tcgemm.nn.QuantLinear)
    assert first.swapped == ["attention"] and second.swapped == ["attention.out_proj"]
    with pytest.raises(RuntimeError, match="has an out_proj that another swap made a QuantLinear"):
        first.undo()
    second.undo()
    first.undo()
    assert type(net.attention) is nn.MultiheadAttention


def test_an_interrupt_leaves_the_model_as_it_was():
    net = model()

    def interrupted(module, name):
        if name == "2":
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        tcgemm.swap_linear(net, interrupted)
    assert kinds(net) == ["Linear", "ReLU", "Linear"] and type(net[0]) is nn.Linear
