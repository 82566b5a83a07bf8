"""Kernels whose CTAs wait for the whole grid, where they do not have the GPU alone."""

import pytest
import torch


def check_streams_and_graphs(multiply, expected, rounds):
    """multiply(out) on two streams, and in a graph on a third one, beside other kernels. Half of
    two grids would wait for ever."""
    outs = [torch.empty_like(expected) for _ in range(3)]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            multiply(outs[2])
    streams = [torch.cuda.Stream() for _ in range(3)]
    x = torch.randn(4096, 4096, device="cuda").bfloat16()
    for _ in range(rounds):
        for stream, out in zip(streams, outs[:2], strict=False):
            with torch.cuda.stream(stream):
                multiply(out)
        with torch.cuda.stream(streams[2]):
            graph.replay()
            x @ x
    torch.cuda.synchronize()
    assert all(torch.equal(out, expected) for out in outs)


def check_part_of_a_gpu(multiply, expected):
    """multiply(out) in a green context of 16 multiprocessors, which refuses the grid."""
    green_contexts = pytest.importorskip("torch.cuda.green_contexts")
    out = torch.empty_like(expected)
    torch.cuda.synchronize()
    try:
        context = green_contexts.GreenContext.create(16, 0)
    except RuntimeError as error:
        pytest.skip(f"no green context: {error}")
    context.set_context()
    try:
        multiply(out)
        torch.cuda.synchronize()
    finally:
        context.pop_context()
    assert torch.equal(out, expected)
