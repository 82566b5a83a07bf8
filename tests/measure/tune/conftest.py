"""A folder for the files of tcgemm.tune, and a machine with an H200, as its driver reports it."""

import pytest

from tcgemm import _driver
from tcgemm.ops import tuned

GPU, RELEASE = "NVIDIA H200", "570.86.15"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder. Before and after a test the planner has no choices."""
    monkeypatch.setenv("TCGEMM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_driver, "release", lambda: RELEASE)
    monkeypatch.setattr(_driver, "gpu_names", lambda: [GPU])
    tuned.forget()
    yield tmp_path / "cache"
    tuned.forget()
