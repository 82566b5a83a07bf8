"""The wheel as a user gets it: its tag, what is in it, `python -m tcgemm` outside the checkout.

The library is the one under test, packed as it is (TCGEMM_PREBUILT): a second compilation would
take minutes and show nothing more.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import torch

import tcgemm
from tcgemm import _library

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = _library.path().resolve()


def missing(name: str, oldest: int) -> bool:
    """Asked of the metadata: find_spec("pip") disables setuptools' distutils for this process."""
    try:
        return int(importlib.metadata.version(name).split(".")[0]) < oldest
    except importlib.metadata.PackageNotFoundError:
        return True


TOOLS = {"setuptools": 77, "pip": 23}
ABSENT = [f"{name} >= {oldest}" for name, oldest in TOOLS.items() if missing(name, oldest)]
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=f"needs {', '.join(ABSENT)}")


def run(*command: object, **options) -> str:
    text = [str(word) for word in command]
    done = subprocess.run(text, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(*command: object) -> str:
    environ = {**os.environ, "TCGEMM_PREBUILT": str(LIBRARY)}
    return run(sys.executable, "setup.py", "-q", *command, cwd=ROOT, env=environ)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    base = ("build", "--build-base", folder / "build")
    dist = ("bdist_wheel", "--bdist-dir", folder / "bdist", "--dist-dir", folder)
    build("egg_info", "--egg-base", folder, *base, *dist)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """A new virtual environment that holds the wheel; torch and its like are lent by this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(site) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=folder)
    return folder


def outside(environment: Path, *arguments: str) -> str:
    """Runs the environment's Python in its own folder, so that the checkout is out of sight."""
    hidden = ("PYTHONPATH", "TCGEMM_LIBRARY")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    return run(environment / "bin" / "python", *arguments, cwd=environment, env=environ)


def test_wheel_is_for_every_python(wheel):
    assert re.fullmatch(r"tcgemm-[\d.]+-py3-none-linux_x86_64\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("dist-info/WHEEL")]
        facts = archive.read(name).decode()
    assert "Tag: py3-none-linux_x86_64\n" in facts
    assert "Root-Is-Purelib: false\n" in facts


def test_wheel_holds_the_library_and_no_sources(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "tcgemm/libtcgemm.so" in names
    assert "tcgemm/__main__.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("csrc", "tests", "benchmarks", "setup"))]


def test_source_distribution_builds_elsewhere(tmp_path):
    build("egg_info", "--egg-base", tmp_path, "sdist", "--dist-dir", tmp_path)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "csrc").rglob("*") if p.is_file()}
    assert sources | {"setup.py", "setup_toolchain.py", "pyproject.toml", "LICENSE"} <= names


def test_installed_package_reports_itself(environment):
    report = outside(environment, "-m", "tcgemm")
    assert f"tcgemm {tcgemm.__version__}" in report
    assert torch.__version__ in report
    assert str(environment) in report
    assert str(ROOT) not in report


def test_installed_operator_computes(environment):
    code = "import tcgemm, torch; print(tcgemm.mm(torch.ones(3, 4), torch.ones(4, 2)).sum().item())"
    assert outside(environment, "-c", code).strip() == "24.0"
