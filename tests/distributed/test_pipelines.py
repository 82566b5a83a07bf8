"""The tracer of torch.distributed.pipelining splits models with every layer; two processes run them."""

import pytest
import torch
from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

from support import processes
from support.sharding import LAYERS, batch, model_of

PARTS = 2  # microbatches


def split(model, x):
    pipe = pipeline(model, mb_args=(x,), split_spec={"2": SplitPoint.BEGINNING})
    assert pipe.num_stages == processes.WORLD_SIZE
    return pipe


def stages(rank, kind):
    """The traced stages, one after the other, have the bits of the model."""
    x, _ = batch()
    for training in (True, False):
        model = model_of(kind).train(training)
        pipe = split(model, x)
        first, second = (pipe.get_stage_module(index) for index in range(2))
        with torch.no_grad():
            assert torch.equal(second(first(x)), model(x))


@pytest.mark.parametrize("kind", LAYERS)
def test_traced_stages(kind, device):
    processes.run(stages, kind, device=device)


def schedule(rank, kind):
    """The results and the gradients of microbatches in two processes."""
    x, target = batch()
    model = model_of(kind)
    expected = [model(each) for each in x.chunk(PARTS)]
    for result, each in zip(expected, target.chunk(PARTS), strict=True):
        ((result - each).square().mean() / PARTS).backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    pipe = split(model_of(kind), x.chunk(PARTS)[0])
    stage = pipe.build_stage(rank, processes.device())

    def loss(result, each):
        return (result - each).square().mean()

    run = ScheduleGPipe(stage, PARTS, loss_fn=loss)
    if rank == 0:
        run.step(x)
    else:
        out = run.step(target=target)
        torch.testing.assert_close(out, torch.cat(expected))
    seen = 0
    for name, each in stage.submod.named_parameters():
        if each.grad is not None:
            torch.testing.assert_close(each.grad, gradients[name])
            seen += 1
    return seen


@pytest.mark.parametrize("kind", LAYERS)
def test_a_schedule_of_two_processes(kind, device):
    counts = processes.run(schedule, kind, device=device)
    assert min(counts) >= 2
