"""How many processes run the tests: hooks of pytest that tests/conftest.py takes over.

A run of a folder takes every core of the CPU, and at most GPU_PROCESSES on a machine with a GPU,
whose memory they share. A run of named files or tests takes one process: a second one costs five
seconds, the time to import torch. Without pytest-xdist there is one process. `-n 3`, `-n 0`,
`--tx` and PYTEST_XDIST_AUTO_NUM_WORKERS decide instead where they are given.
"""

import os

import pytest
import torch

from support import gpu

GPU_PROCESSES = 8


def cores() -> int:
    return len(os.sched_getaffinity(0))


def has_gpu() -> bool:
    return gpu.build()["cuda"] is not None and torch.cuda.is_available()


def processes() -> int:
    return min(cores(), GPU_PROCESSES) if has_gpu() else cores()


def is_parallel(config: pytest.Config) -> bool:
    """True if the command line does not set the number of processes."""
    if "PYTEST_XDIST_WORKER" in os.environ:  # xdist calls pytest_cmdline_main in its processes, too
        return False
    option = config.option
    if getattr(option, "numprocesses", 0) is not None or option.tx:
        return False  # there is no pytest-xdist, or the user gave a number
    watched = option.usepdb or option.collectonly or option.capture == "no"
    return not watched and any(os.path.isdir(name) for name in config.args)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Before the hook of xdist, which reads the option."""
    if is_parallel(config) and processes() > 1:
        config.option.numprocesses = "auto"
        if config.option.dist == "no":
            config.option.dist = "worksteal"  # tests of one module mostly share a process


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """The meaning of `-n auto`; None leaves the answer to xdist."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else processes()


def are_several(config: pytest.Config) -> bool:
    """Do other processes of this run use the GPU as well?"""
    return getattr(config, "workerinput", {"workercount": 1})["workercount"] > 1


def limit_threads(config: pytest.Config) -> None:
    """Gives a process of xdist its share of the cores; torch would start a thread for each core."""
    if worker := getattr(config, "workerinput", None):
        torch.set_num_threads(max(1, cores() // worker["workercount"]))
