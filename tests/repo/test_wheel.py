"""The wheel as a user gets it: its tag, what is in it, the command outside the checkout.

The library is the one under test, packed as it is (TCGEMM_PREBUILT): a second compilation would
take minutes and show nothing more.
"""

from __future__ import annotations

import email
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
from tcgemm import _library, info

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
    process = subprocess.run(text, capture_output=True, text=True, **options)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def build(*command: object) -> str:
    environ = {**os.environ, "TCGEMM_PREBUILT": str(LIBRARY)}
    return run(sys.executable, "setup.py", "-q", *command, cwd=ROOT, env=environ)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    base = ("build", "--build-base", folder / "build")
    dist = ("bdist_wheel", "--bdist-dir", folder / "bdist", "--dist-dir", folder)
    text = build("egg_info", "--egg-base", folder, *base, *dist)
    (path,) = folder.glob("*.whl")
    last = text.splitlines()[-1]
    assert last == f"tcgemm: wrote {path}. pip install {path} installs it."
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


def outside(environment: Path, command: str, *arguments: str) -> str:
    """Runs a command of the environment in its own folder, where the checkout is out of sight."""
    hidden = ("PYTHONPATH", "TCGEMM_LIBRARY")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    return run(environment / "bin" / command, *arguments, cwd=environment, env=environ)


def dist_info(wheel: Path, file: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(f"dist-info/{file}")]
        return archive.read(name).decode()


LIBRARIES = ["tcgemm/libtcgemm.so", "tcgemm/libtcgemm_lab.so"]
VERSION = tcgemm.__version__ + ("" if info.build()["cuda"] else "+cpu")


def test_wheel_is_for_every_python(wheel):
    assert wheel.name == f"tcgemm-{VERSION}-py3-none-linux_x86_64.whl"
    facts = dist_info(wheel, "WHEEL")
    assert "Tag: py3-none-linux_x86_64\n" in facts
    assert "Root-Is-Purelib: false\n" in facts
    with zipfile.ZipFile(wheel) as archive:
        compiled = [name for name in archive.namelist() if name.endswith(".so")]
    assert sorted(compiled) == LIBRARIES


@pytest.mark.nightly
def test_wheel_for_manylinux(wheel, tmp_path):
    if missing("auditwheel", 6) or missing("patchelf", 0):
        pytest.skip("needs auditwheel >= 6 and patchelf")
    build("manylinux_wheel", "--wheel", wheel, "--dist-dir", tmp_path)
    (path,) = tmp_path.glob("*.whl")
    assert path.name == f"tcgemm-{VERSION}-py3-none-manylinux_2_34_x86_64.whl"
    assert "Tag: py3-none-manylinux_2_34_x86_64\n" in dist_info(path, "WHEEL")
    with zipfile.ZipFile(path) as archive:
        assert sorted(name for name in archive.namelist() if ".so" in name) == LIBRARIES


@pytest.mark.parametrize(("cuda", "version"), [(True, "0.1.0"), (False, "0.1.0+cpu")])
def test_a_cpu_wheel_says_so_in_its_version(tmp_path, cuda, version):
    library = tmp_path / "libtcgemm.so"
    library.write_bytes(b"\x7fELF" + (b"\0.nv_fatbin\0" if cuda else b"\0.text\0"))
    environ = {**os.environ, "TCGEMM_PREBUILT": str(library)}
    command = ("egg_info", "--egg-base", tmp_path, "dist_info", "--output-dir", tmp_path)
    run(sys.executable, "setup.py", "-q", *command, cwd=ROOT, env=environ)
    (folder,) = tmp_path.glob("*.dist-info")
    assert folder.name == f"tcgemm-{version.replace('0.1.0', tcgemm.__version__)}.dist-info"


def test_metadata_has_the_version(wheel):
    facts = email.message_from_string(dist_info(wheel, "METADATA"))
    assert facts["Version"] == VERSION


def test_links_on_pypi_are_absolute(wheel):
    facts = email.message_from_string(dist_info(wheel, "METADATA"))
    assert facts["Description-Content-Type"] == "text/markdown"
    text = facts.get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text)
    links = [first or second for first, second in links]
    assert len(links) > 5
    assert not [link for link in links if not link.startswith(("https://", "#"))]


def test_wheel_holds_the_library_and_no_sources_but_those_of_the_ladders(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "tcgemm/libtcgemm.so" in names
    assert {"tcgemm/__main__.py", "tcgemm/py.typed"} <= set(names)
    stored = [str(path.relative_to(ROOT)) for path in ROOT.glob("tcgemm/lab/results/*/*.json")]
    assert stored and {*stored, "tcgemm/published/figures.json"} <= set(names)
    notebooks = {path.name for path in ROOT.glob("benchmarks/notebooks/**/*.ipynb")}
    assert notebooks == {name.split("/")[-1] for name in names if name.endswith(".ipynb")}
    assert "tcgemm/measure/recorded/h200.json" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("csrc", "tests", "benchmarks", "setup"))]
    kernels = [file for file in (ROOT / "csrc/lab").iterdir() if file.suffix != ".cpp"]
    sources = {name for name in names if name.endswith((".cu", ".cuh", ".h", ".cpp"))}
    assert sources == {f"tcgemm/lab/ladder/csrc/{file.name}" for file in kernels}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    build("egg_info", "--egg-base", folder, "sdist", "--dist-dir", folder)
    (path,) = folder.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return folder / path.name.removesuffix(".tar.gz")


@pytest.mark.nightly
def test_source_distribution_is_whole(unpacked):
    folders = ("benchmarks", "csrc", "docs", "tcgemm", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files = [p for p in files if p.suffix != ".so" and "__pycache__" not in p.parts]
    files += [ROOT / name for name in ("Makefile", "README.md", "CHANGELOG.md", "LICENSE")]
    files += [ROOT / name for name in ("setup.py", "setup_toolchain.py", "pyproject.toml")]
    files += [ROOT / name for name in ("CITATION.cff", "CONTRIBUTING.md", "mkdocs.yml")]
    names = [path.relative_to(ROOT) for path in files]
    assert not [str(name) for name in names if not (unpacked / name).is_file()]


def test_installed_package_reports_itself(environment):
    report = outside(environment, "python", "-m", "tcgemm")
    assert f"tcgemm {tcgemm.__version__}" in report
    assert torch.__version__ in report
    assert str(environment) in report
    assert str(ROOT) not in report


def test_installed_package_has_the_sources_of_the_ladders(environment):
    code = "from tcgemm.lab.ladder import sources; print(sources.folder(), *sources.names())"
    folder, *names = outside(environment, "python", "-c", code).split()
    assert folder.startswith(str(environment)) and folder.endswith("/tcgemm/lab/ladder/csrc")
    assert names == sorted(file.stem for file in (ROOT / "csrc/lab").glob("*.cu"))


def test_installed_notebooks_begin(environment):
    """`tcgemm notebooks` copies them, and their first cells run outside of the checkout."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    outside(environment, "tcgemm", "notebooks", "copies")
    program = """
import json, pathlib
for path in sorted(pathlib.Path("copies").rglob("*.ipynb")):
    cells = json.loads(path.read_text())["cells"]
    exec("".join(next(cell for cell in cells if cell["cell_type"] == "code")["source"]), {})
    print("begins:", path.stem)
from tcgemm.measure import results
print("recorded:", len(results.recorded()["NVIDIA H200"].rows))
"""
    printed = outside(environment, "python", "-c", program)
    assert printed.count("begins: ") == len([*ROOT.glob("benchmarks/notebooks/**/*.ipynb")])
    here = "Measured now on" if torch.cuda.is_available() else "the times below are stored ones"
    assert printed.count(here) == 4
    assert int(printed.split("recorded: ")[1]) > 1000


def test_installed_command(environment):
    assert outside(environment, "tcgemm", "--version") == f"tcgemm {tcgemm.__version__}\n"
    assert "kernel" in outside(environment, "tcgemm", "explain", "64", "64", "64")


def test_installed_package_computes_saves_and_answers_in_sentences(environment):
    output = outside(environment, "python", str(ROOT / "tests/support/check_installed.py"))
    assert f"torch {torch.__version__}" in output and str(environment) in output
