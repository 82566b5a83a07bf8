"""The tracer of pipelines splits models with every layer, and two processes run the stages."""

import pytest
import torch
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, SplitPoint

from tcgemm.integrations.pipelining import pipeline

from support import processes
from support.processes import in_processes
from support.sharding import LAYERS, batch, model_of

PARTS = 2  # microbatches


def split(model, x):
    pipe = pipeline(model, mb_args=(x,), split_spec={"2": SplitPoint.BEGINNING})
    assert pipe.num_stages == processes.WORLD_SIZE
    return pipe


@pytest.mark.parametrize("kind", LAYERS)
@in_processes
def test_traced_stages(rank, kind):
    """The traced stages, one after the other, have the bits of the model."""
    x, _ = batch()
    for training in (True, False):
        model = model_of(kind).train(training)
        pipe = split(model, x)
        first, second = (pipe.get_stage_module(index) for index in range(2))
        with torch.no_grad():
            assert torch.equal(second(first(x)), model(x))


@pytest.mark.parametrize("kind", LAYERS)
@in_processes
def test_forwards_of_two_processes(rank, kind):
    x, _ = batch()
    expected = torch.cat([model_of(kind)(part) for part in x.chunk(PARTS)])
    pipe = split(model_of(kind), x.chunk(PARTS)[0])
    run = ScheduleGPipe(pipe.build_stage(rank, processes.device()), PARTS)
    with torch.no_grad():
        out = run.step(*((x,) if rank == 0 else ()))
    if rank:
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(
    ("kind", "traced"),
    [
        *((kind, False) for kind in LAYERS),
        *((kind, True) for kind in ("linear", "int8", "e4m3", "float8")),
    ],
)
@in_processes
def test_training_of_two_processes(rank, kind, traced):
    """The gradients of microbatches.

    Exported sparse layers have no derivatives, so their stages are split manually.
    """
    x, target = batch()
    model = model_of(kind)
    results = [model(part) for part in x.chunk(PARTS)]
    for result, part in zip(results, target.chunk(PARTS), strict=True):
        ((result - part).square().mean() / PARTS).backward()
    gradients = [part.grad for part in (model[:2], model[2:])[rank].parameters()]
    model = model_of(kind)
    if traced:
        stage = split(model, x.chunk(PARTS)[0]).build_stage(rank, processes.device())
    else:
        half = (model[:2], model[2:])[rank]
        stage = PipelineStage(half, rank, processes.WORLD_SIZE, processes.device())

    def loss(result, part):
        return (result - part).square().mean()

    run = ScheduleGPipe(stage, PARTS, loss_fn=loss)
    run.step(*((x,) if rank == 0 else ()), **({"target": target} if rank else {}))
    for part, gradient in zip(stage.submod.parameters(), gradients, strict=True):
        torch.testing.assert_close(part.grad, gradient)
