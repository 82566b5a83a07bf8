"""The state of every layer: saved by two processes, read by one or two, under another tool."""

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from support import processes
from support.processes import in_processes
from support.sharding import (
    LAYERS,
    WRAPPERS,
    batch,
    losses_of,
    model_of,
    options_of,
    reshard,
    wrapped,
)

TOOLS = [name for name in WRAPPERS if "compiled" not in name]
OTHERS = {"ddp": "fsdp2", "fsdp1": "ddp"}  # every other one is read under FSDP1
every_layer = pytest.mark.parametrize("kind", LAYERS)
every_tool = pytest.mark.parametrize("wrapper", TOOLS)


def result_of(model):
    with torch.no_grad():
        return model.eval()(batch()[0]).float()


def assert_same(result, expected, near=0):
    """With equal bits on the CPU. Under another tool, a GPU may take other kernels: a Parameter in
    gathered memory has another alignment."""
    near = near if result.device.type == "cpu" else max(near, 1e-2)
    torch.testing.assert_close(result, expected, rtol=near, atol=2 * near)


def inner(model):
    """Without DDP, for set_model_state_dict: the parts of a sparse weight are no Parameters, so it
    does not put DDP's `module.` before their names."""
    return getattr(model, "module", model) if type(model).__name__.startswith("Dis") else model


def other_model(kind, wrapper, tool=None):
    """A wrapped model of another seed, in the dtypes that `wrapper` asks for."""
    model = model_of(kind, 1, **options_of(kind, wrapper))
    return WRAPPERS[tool or wrapper](model)


@every_tool
@every_layer
@in_processes
def test_the_state_of_a_model(rank, kind, wrapper):
    """state_dict and load_state_dict, and torch's functions with their options."""
    model = wrapped(kind, wrapper)
    losses_of(model, *batch(), steps=2)
    expected = result_of(model)
    twin = other_model(kind, wrapper)
    assert not torch.equal(result_of(twin), expected)
    twin.load_state_dict(model.state_dict())
    assert torch.equal(result_of(twin), expected)
    choices = [{}, {"cpu_offload": True}, {"full_state_dict": True}]
    on_gpu = processes.device().type == "cuda"
    if wrapper == "fsdp2_offload" and kind in ("int8", "e4m3") and on_gpu:
        choices.pop()  # torch: "Multiple devices found", for any buffer beside offloaded Parameters
    for options in choices:
        options = StateDictOptions(**options)
        state = get_model_state_dict(model, options=options)
        assert all("module." not in name for name in state)
        twin = other_model(kind, wrapper)
        set_model_state_dict(inner(twin), state, options=options)
        assert torch.equal(result_of(twin), expected)
    if wrapper.startswith("fsdp1") and not on_gpu:
        return  # torch frees a FlatParameter of the CPU after its copy to the CPU, its own memory
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    assert bool(state) is (rank == 0)  # torch keeps it in the first process
    if rank == 0:
        assert all(tensor.device.type == "cpu" for tensor in state.values())


def checkpoints(rank, kind, wrapper, folder):
    model = wrapped(kind, wrapper)
    losses_of(model, *batch(), steps=2)
    expected = result_of(model)
    checkpoint.save(get_model_state_dict(model), checkpoint_id=folder)
    # Only sparse layers of bfloat16 have mixed precision, and other tools do not make them.
    mixed = wrapper == "fsdp2_mixed"
    tools = [] if mixed and kind in ("frozen", "learns") else [OTHERS.get(wrapper, "fsdp1")]
    for tool in (wrapper, *tools):
        twin = inner(other_model(kind, wrapper, tool))
        state = get_model_state_dict(twin)
        checkpoint.load(state, checkpoint_id=folder)
        set_model_state_dict(twin, state)
        near = 1e-2 if mixed and tool != wrapper else 0
        assert_same(result_of(twin), expected, near)


@every_tool
@every_layer
def test_distributed_checkpoints(kind, wrapper, device, tmp_path):
    """They are read by two processes, under the same tool and under another one."""
    processes.run(checkpoints, kind, wrapper, str(tmp_path), device=device)
    if wrapper == "fsdp2_mixed":
        return
    model = model_of(kind, 1)
    state = model.state_dict()
    checkpoint.load(state, checkpoint_id=tmp_path, no_dist=True)
    model.load_state_dict(state)
    losses = processes.run(continued, kind, wrapper, str(tmp_path), device=device)
    expected, _ = losses_of(model, *batch(), steps=2)
    near = 0 if device == "cpu" else 1e-2  # this process computes on the CPU
    for curve in losses:
        torch.testing.assert_close(curve, expected, rtol=near, atol=0)


def continued(rank, kind, wrapper, folder):
    """The losses of the next steps, from a checkpoint."""
    model = other_model(kind, wrapper)
    state = get_model_state_dict(inner(model))
    checkpoint.load(state, checkpoint_id=folder)
    set_model_state_dict(inner(model), state)
    return losses_of(model, *batch(), steps=2)[0]


@every_tool
@pytest.mark.parametrize("kind", ["linear", "float8", "learns"])
@in_processes
def test_the_state_of_an_optimizer(rank, kind, wrapper, tmp_path):
    """The states of AdamW go on where they were saved."""

    def made(seed):
        # A count of steps until the next positions is no part of a state.
        options = {"refresh_every": 0} if kind == "learns" else {}
        model = WRAPPERS[wrapper](model_of(kind, seed, **options))
        return model, torch.optim.AdamW(model.parameters(), lr=0.02)

    def state_of(model, optimizer):
        reshard(model)
        optimizer = get_optimizer_state_dict(model, optimizer)
        return {"model": get_model_state_dict(inner(model)), "optimizer": optimizer}

    model, optimizer = made(0)
    losses_of(model, *batch(), steps=2, optimizer=optimizer)
    checkpoint.save(state_of(model, optimizer), checkpoint_id=tmp_path)
    expected, _ = losses_of(model, *batch(), optimizer=optimizer)
    twin, twin_optimizer = made(1)
    state = state_of(twin, twin_optimizer)
    checkpoint.load(state, checkpoint_id=tmp_path)
    set_model_state_dict(inner(twin), state["model"])
    set_optimizer_state_dict(twin, twin_optimizer, state["optimizer"])
    assert losses_of(twin, *batch(), optimizer=twin_optimizer)[0] == expected


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp1", "fsdp2"])
@every_layer
@in_processes
def test_a_checkpoint_of_one_process(rank, kind, wrapper, tmp_path):
    """One process writes a model without any tool, and two read it."""
    model = model_of(kind)
    losses_of(model, *batch(), steps=2)
    if rank == 0:
        checkpoint.save(model.state_dict(), checkpoint_id=tmp_path, no_dist=True)
    torch.distributed.barrier()
    twin = other_model(kind, wrapper)
    state = get_model_state_dict(inner(twin))
    checkpoint.load(state, checkpoint_id=tmp_path)
    set_model_state_dict(inner(twin), state)
    assert_same(result_of(twin), result_of(model))


@pytest.mark.parametrize("kind", ["linear", "float8", "int8"])
@in_processes
def test_a_state_that_is_broadcast(rank, kind):
    """Only the first process has the state."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    model = wrapped(kind, "fsdp2")
    if kind == "learns":
        losses_of(model, *batch(), steps=2)
    expected = result_of(model)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    twin = other_model(kind, "fsdp2")
    set_model_state_dict(twin, state if rank == 0 else {}, options=options)
    assert torch.equal(result_of(twin), expected)


def broadcast_of_sparse_layers(rank, kind):
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    model = wrapped(kind, "fsdp2")
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    twin = other_model(kind, "fsdp2")
    try:
        set_model_state_dict(twin, state if rank == 0 else {}, options=options)
    except RuntimeError as error:
        return str(error)


def test_the_state_of_sparse_layers_belongs_into_every_process(device):
    """A learning layer that had its weight alone would choose other positions in each process."""
    first, second = processes.run(broadcast_of_sparse_layers, "frozen", device=device)
    assert first is None and 'Missing key(s) in state_dict: "2.weight.values"' in second
    for message in processes.run(broadcast_of_sparse_layers, "learns", device=device):
        assert "pass the whole state in every process" in message


@in_processes
def test_positions_of_mixed_precision(rank, tmp_path):
    """Positions of 2:4, which bfloat16 has, and float32 has not."""
    model = wrapped("learns", "fsdp2_mixed")
    losses_of(model, *batch(), steps=2)
    assert model[2].kept.pattern == "2:4"
    checkpoint.save(model.state_dict(), checkpoint_id=tmp_path)
    twin = model_of("learns")
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    with pytest.raises(RuntimeError, match=r"has the pattern 2:4.*convert the layer to torch.bflo"):
        twin.load_state_dict(full)
    twin[2].to(torch.bfloat16)
    twin.load_state_dict(full)
    assert torch.equal(twin[2].kept.to_dense() != 0, model[2].kept.to_dense() != 0)
