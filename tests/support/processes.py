"""Runs tests and functions in two processes, the same two for all tests of a device, or in one.

    cpu     gloo; the processes see no GPU
    cuda    NCCL for tensors on a GPU, gloo for others; each process has a GPU of its own

A function asks device() where its tensors belong, and so runs on both.
"""

import functools
import inspect
import io
import os
import socket
import traceback
from datetime import timedelta
from multiprocessing.connection import wait
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh

WORLD_SIZE = 2
SECONDS = 180  # a process that waits longer for the other one ends
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
# Without any GPU the mark `gpu` skips the test, or fails it where TCGEMM_REQUIRE_GPU is 1.
TWO_GPUS = (
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() == 1, reason="needs two GPUs"),
)
DEVICES = ("cpu", pytest.param("cuda", marks=TWO_GPUS))
_here = torch.device("cpu")  # of a worker


def device():
    """The device of the process that asks."""
    return _here


def mesh():
    """A mesh of all processes."""
    return init_device_mesh(_here.type, (dist.get_world_size(),))


def same(result, expected):
    """Are the bits equal? On a GPU, a part of a product may have another kernel than the whole, so
    there rounding counts as equal, and in 8 bits the other side of it."""
    if result.device.type == "cpu":
        return torch.equal(result, expected)
    near = 1e-2 * expected.abs().max().item()
    return torch.allclose(result, expected, rtol=0, atol=near)


def in_processes(function, **options):
    """A test that calls function(rank, ...) in each process of the fixture `device`.

    `options` are those of run, and then the test has no fixture `device`.
    """
    names = list(inspect.signature(function).parameters)[1:]
    fixtures = [] if options else ["device"]

    @functools.wraps(function)
    def test(**values):
        where = {name: values[name] for name in fixtures}
        run(test, *(values[name] for name in names), **where, **options)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword) for name in (*names, *fixtures)]
    test.__signature__ = inspect.Signature(parameters)  # pytest reads the fixtures from it
    return test


in_cpu_processes = functools.partial(in_processes, device="cpu")


def run(function, *arguments, device="cpu", world=WORLD_SIZE):
    """The results of function(rank, *arguments), one a rank; an error of any rank is raised here.

    The function, or the test that in_processes made of it, stands in a module that the processes
    can import. Tensors of the results come to the CPU.
    """
    workers = _workers(device, world)
    for _, pipe in workers:
        pipe.send((function, arguments))
    results, waiting = {}, {pipe: rank for rank, (_, pipe) in enumerate(workers)}
    while waiting:
        ready = wait(list(waiting), SECONDS)
        error = "" if ready else f"no answer in {SECONDS} s"
        for pipe in ready:
            rank = waiting.pop(pipe)
            try:
                error, data = pipe.recv()
            except EOFError:
                error = f"the process ended with {workers[rank][0].exitcode}"
            if error:
                break
            results[rank] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
        if error:
            for process, _ in workers:  # the others may wait for this one
                process.kill()
            _workers.cache_clear()
            raise AssertionError(error)
    return [results[rank] for rank in range(world)]


@functools.cache
def _workers(device, world):
    """The processes and the pipes to them. They are daemons, and end with this process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context, workers = mp.get_context("spawn"), []
    for rank in range(world):
        pipe, other = context.Pipe()
        arguments = (rank, port, other, device, world)
        process = context.Process(target=_work, args=arguments, daemon=True)
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}  # fully_shard prefers GPUs
        with mock.patch.dict(os.environ, hidden):
            process.start()
        workers.append((process, pipe))
    return workers


def _work(rank, port, pipe, device, world):
    global _here
    torch.set_num_threads(1)
    if device == "cuda":
        _here = torch.device("cuda", rank)
        torch.cuda.set_device(_here)
    dist.init_process_group(
        BACKENDS[device],
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=SECONDS),
    )
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            torch.manual_seed(20)
            data = io.BytesIO()
            torch.save(inspect.unwrap(function)(rank, *arguments), data)
            pipe.send(("", data.getvalue()))
        except BaseException:
            pipe.send((traceback.format_exc(), b""))
