"""How many processes run the tests: on a CPU, on a GPU, and without pytest-xdist.

The runs are of a folder with two small tests. Its conftest.py takes the hooks of tests/conftest.py;
the numbers of cores and GPUs are made up, and a stub in the place of torch saves the time of its
import.
"""

import os
import re
import subprocess
import sys

import pytest

from support import workers
from support.source_tree import ROOT

CONFTEST = """
import sys, types
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.threads = None
torch.set_num_threads = lambda count: setattr(torch, "threads", count)
sys.modules["support.gpu"] = types.ModuleType("support.gpu")
from support import workers
from support.workers import pytest_cmdline_main, pytest_xdist_auto_num_workers
workers.cores = lambda: CORES
workers.has_gpu = lambda: GPU
workers.GPU_PROCESSES = 2
pytest_configure = workers.limit_threads
"""
TESTS = """
import os, pytest, torch
@pytest.mark.parametrize("number", range(8))
def test_threads(number):
    assert torch.threads == THREADS
"""


@pytest.fixture
def run(tmp_path):
    """Runs pytest in the folder -> the processes that it says it has started, 0 for none."""

    def run(*arguments, cores=2, gpu=False, threads=1, xdist=True, **environ):
        if xdist:
            pytest.importorskip("xdist")
            arguments = ("-p", "xdist.plugin", *arguments)
        (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = inner\n")
        (tmp_path / "inner").mkdir(exist_ok=True)
        conftest = CONFTEST.replace("CORES", str(cores)).replace(": GPU", f": {gpu}")
        (tmp_path / "inner/conftest.py").write_text(conftest)
        (tmp_path / "inner/test_it.py").write_text(TESTS.replace("THREADS", str(threads)))
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
        # Another plugin costs a second of each process.
        environ = {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *arguments],
            env=kept | environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "8 passed" in done.stdout or "8 tests collected" in done.stdout
        started = re.search(r"created: (\d+)/\1 worker", done.stdout)
        return int(started.group(1)) if started else 0

    return run


@pytest.mark.parametrize(
    ("cores", "gpu", "count"), [(2, False, 2), (64, False, 64), (64, True, 8), (4, True, 4)]
)
def test_all_cores_and_at_most_eight_processes_on_a_gpu(monkeypatch, cores, gpu, count):
    monkeypatch.setattr(workers, "cores", lambda: cores)
    monkeypatch.setattr(workers, "has_gpu", lambda: gpu)
    assert workers.processes() == count


def test_conftest_has_the_hooks(pytestconfig):
    conftest = pytestconfig.pluginmanager.getplugin(str(ROOT / "tests/conftest.py"))
    assert conftest.pytest_cmdline_main is workers.pytest_cmdline_main
    assert conftest.pytest_xdist_auto_num_workers is workers.pytest_xdist_auto_num_workers


def test_a_process_of_xdist_starts_no_others(monkeypatch, pytestconfig):
    monkeypatch.setattr(pytestconfig.option, "numprocesses", None, raising=False)
    monkeypatch.setattr(pytestconfig.option, "tx", [], raising=False)
    monkeypatch.setattr(pytestconfig.option, "capture", "fd")
    monkeypatch.setattr(pytestconfig, "args", [str(ROOT / "tests")])
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert workers.chosen(pytestconfig)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert not workers.chosen(pytestconfig)


def test_run_of_a_folder_takes_all_cores(run):
    assert run() == 2
    assert run("inner", cores=7, threads=3, PYTEST_XDIST_AUTO_NUM_WORKERS="2") == 2


def test_run_on_a_gpu_takes_no_more_than_its_processes(run):
    assert run(cores=32, gpu=True, threads=16) == 2


def test_run_without_xdist_takes_one_process(run):
    assert run(xdist=False, threads=None) == 0


@pytest.mark.parametrize("argument", ["inner/test_it.py", "-s", "--pdb", "--collect-only"])
def test_named_file_and_watched_run_take_one_process(run, argument):
    assert run(argument, threads=None) == 0


def test_number_of_the_command_line_counts(run):
    assert run("-n", "0", threads=None) == 0
    assert run("-n", "auto", "inner/test_it.py") == 2
