"""Runs functions in two processes that talk through gloo; the same two for all tests."""

import functools
import io
import socket
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD_SIZE = 2
SECONDS = 180  # a process that waits longer for the other one ends


def run(function, *arguments):
    """The results of function(rank, *arguments), one a rank; an error of any rank is raised here.

    The function stands in a module that the processes can import.
    """
    workers = _workers()
    for _, pipe in workers:
        pipe.send((function, arguments))
    results = []
    for process, pipe in workers:
        error = "" if pipe.poll(SECONDS) else f"no answer in {SECONDS} s"
        try:
            error, data = (error, b"") if error else pipe.recv()
        except EOFError:
            error = f"the process ended with {process.exitcode}"
        if error:
            for other, _ in workers:  # the others may wait for this one
                other.kill()
            _workers.cache_clear()
            raise AssertionError(error)
        results.append(torch.load(io.BytesIO(data), weights_only=False))
    return results


@functools.cache
def _workers():
    """The processes and the pipes to them. They are daemons, and end with this process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context, workers = mp.get_context("spawn"), []
    for rank in range(WORLD_SIZE):
        pipe, other = context.Pipe()
        process = context.Process(target=_work, args=(rank, port, other), daemon=True)
        process.start()
        workers.append((process, pipe))
    return workers


def _work(rank, port, pipe):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=WORLD_SIZE,
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
            torch.save(function(rank, *arguments), data)
            pipe.send(("", data.getvalue()))
        except BaseException:
            pipe.send((traceback.format_exc(), b""))
