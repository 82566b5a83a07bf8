"""What every test file shares: GPU marks, devices, seeds, hypothesis' profile.

A test that needs a GPU is marked `gpu` and is skipped where there is none. On a machine that must
have one, TCGEMM_REQUIRE_GPU=1 turns that skip into a failure, so that a broken driver or a CPU
build cannot pass for a green run. Tests that run on both take their device from cases.DEVICES or
cases.DEVICE_DTYPES, or from the fixture `device`; the CUDA half of those is marked.
"""

import functools
import json
import os

import cases
import pytest
import torch
from hypothesis import HealthCheck, settings

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)

settings.register_profile(
    "tcgemm",
    deadline=None,  # two busy cores make any deadline a coin toss
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tcgemm")


@functools.cache
def missing(mark: str) -> str:
    """Why tests with this mark cannot run here; "" if they can."""
    if json.loads(torch.ops.tcgemm.build_info())["cuda"] is None:
        return "this tcgemm was built without CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA GPU"
    capability = torch.cuda.get_device_capability()
    if mark == "sm90" and capability != (9, 0):
        return f"this GPU has compute capability {capability[0]}.{capability[1]}, not 9.0"
    return ""


def pytest_runtest_setup(item):
    if item.get_closest_marker("sm90") is not None:
        built = json.loads(torch.ops.tcgemm.build_info())
        if built["cuda"] is not None and "9.0a" not in built["arches"]:
            pytest.skip(f"a build of the older kernels: {', '.join(built['arches'])}")
    for mark in ("gpu", "sm90"):
        if item.get_closest_marker(mark) is None or not (reason := missing(mark)):
            continue
        if os.environ.get("TCGEMM_REQUIRE_GPU") == "1":
            pytest.fail(f"TCGEMM_REQUIRE_GPU=1, but {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def seed():
    """The same data in every run, in any order and selection of tests."""
    torch.manual_seed(20)


@pytest.fixture(params=cases.DEVICES)
def device(request):
    """ "cpu" and "cuda"; the latter is marked `gpu`."""
    return request.param
