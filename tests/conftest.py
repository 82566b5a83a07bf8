"""Shared by every test file: GPU marks, devices, seeds, processes, hypothesis' profile.

A test that needs a GPU is marked `gpu`. Where there is none it is left out of the collection, or
skipped if it is asked for by its name. On a machine that must have one, TCGEMM_REQUIRE_GPU=1 makes
it fail, so that a broken driver or a CPU build cannot pass for a green run. Tests that run on both
take their device from cases.DEVICES or from dtype_matrix.py, or from the fixture `device`; the CUDA
half of those is marked.
"""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)
from tcgemm.measure.amx import avoid_forbidden_amx

from support import cases, workers
from support.gpu import missing, older
from support.workers import pytest_cmdline_main, pytest_xdist_auto_num_workers  # noqa: F401

settings.register_profile(
    "tcgemm",
    deadline=None,  # two busy cores make any deadline a coin toss
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tcgemm")

# The user's tuned kernels change no plan here, nor in the processes that tests start.
_CACHE = tempfile.TemporaryDirectory(prefix="tcgemm-cache-")
os.environ["TCGEMM_CACHE_DIR"] = _CACHE.name


def pytest_addoption(parser):
    parser.addoption(
        "--all", action="store_true", help="run the tests that are marked nightly, too"
    )


GPU_MARKS = ("gpu", "sm89", "sm90")


def gpu_is_required():
    return os.environ.get("TCGEMM_REQUIRE_GPU") == "1"


def pytest_collection_modifyitems(config, items):
    """Leaves out what is not asked for by its name: tests that are marked `nightly`, unless --all
    is given, and tests for another GPU. To skip those takes a minute."""
    if any("::" in name for name in config.args):
        return
    unwanted = [] if config.option.all else ["nightly"]
    if not gpu_is_required():
        unwanted += [mark for mark in GPU_MARKS if missing(mark)]
    left_out = {id(item) for item in items if any(map(item.get_closest_marker, unwanted))}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


def pytest_terminal_summary(terminalreporter):
    if not gpu_is_required() and (reason := missing("gpu")):
        terminalreporter.line(f"GPU tests were left out: {reason}")


@pytest.hookimpl(trylast=True)  # once there is a terminal writer
def pytest_configure(config):
    """Before the first product of torch; the workers of xdist inherit the variable."""
    if not hasattr(config, "workerinput") and (sentence := avoid_forbidden_amx()):
        config.get_terminal_writer().line(sentence)
    workers.limit_threads(config)


def pytest_runtest_setup(item):
    if item.get_closest_marker("alone") and workers.are_several(item.config):
        pytest.skip("it times the GPU, which other processes use; -m alone runs it")
    for mark in GPU_MARKS:
        if item.get_closest_marker(mark) is None:
            continue
        if reason := missing(mark):
            if gpu_is_required():
                pytest.fail(f"TCGEMM_REQUIRE_GPU=1, but {reason}", pytrace=False)
            pytest.skip(reason)
        if mark != "gpu" and (code := older(mark)):
            pytest.skip(f"a build of older kernels: the GPU runs its code for {code}")


@pytest.fixture(autouse=True)
def seed():
    """The same data in every run, in any order and selection of tests."""
    torch.manual_seed(20)


@pytest.fixture(params=cases.DEVICES)
def device(request):
    """ "cpu" and "cuda"; the latter is marked `gpu`."""
    return request.param


@pytest.fixture
def free_memory():
    """For large tensors: one test at a time, of all processes, and the driver gets memory back."""
    with open(Path(tempfile.gettempdir()) / "tcgemm-room.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        if free < 20e9:
            pytest.skip(f"20 GB of free memory are needed, {free / 1e9:.0f} are there")
        yield
        torch.cuda.empty_cache()
