"""Shared by every test file: GPU marks, devices, seeds, processes, hypothesis' profile.

A test that needs a GPU is marked `gpu` and is skipped where there is none. On a machine that must
have one, TCGEMM_REQUIRE_GPU=1 makes that skip a failure, so that a broken driver or a CPU
build cannot pass for a green run. Tests that run on both take their device from cases.DEVICES or
from dtype_matrix.py, or from the fixture `device`; the CUDA half of those is marked.
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


def pytest_collection_modifyitems(config, items):
    """Leaves out what is marked `nightly`, unless it is asked for by --all or by its name."""
    if config.option.all or any("::" in name for name in config.args):
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=nightly)
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.hookimpl(trylast=True)  # once there is a terminal writer
def pytest_configure(config):
    """Before the first product of torch; the workers of xdist inherit the variable."""
    if not hasattr(config, "workerinput") and (sentence := avoid_forbidden_amx()):
        config.get_terminal_writer().line(sentence)
    workers.limit_threads(config)


def pytest_runtest_setup(item):
    if item.get_closest_marker("alone") and workers.are_several(item.config):
        pytest.skip("it times the GPU, which other processes use; -m alone runs it")
    for mark in ("gpu", "sm89", "sm90"):
        if item.get_closest_marker(mark) is None:
            continue
        if reason := missing(mark):
            if os.environ.get("TCGEMM_REQUIRE_GPU") == "1":
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
