"""The package finds its operator library, or says in one sentence why it cannot use it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tcgemm
from tcgemm import _library

from support.installed import copy_package
from support.programs import last_error


def run(script, library=None):
    """(the exit status, the last line of stderr) of a script."""
    return last_error(script, TCGEMM_LIBRARY=str(library or _library.path().resolve()))


def test_a_file_that_is_no_library(tmp_path):
    file = tmp_path / "libtext.so"
    file.write_text("no library")
    code, line = run("import tcgemm", library=file)
    assert code == 1 and "could not be loaded into torch" in line and "build it again" in line
    assert line.startswith("ImportError: ") and torch.__version__ in line and str(file) in line
    assert "setup.py build_ext --inplace" in line


def test_a_missing_library(tmp_path):
    file = tmp_path / "libabsent.so"
    _, line = run("import tcgemm", library=file)
    assert line.startswith(f"ImportError: tcgemm's operator library {file} (from TCGEMM_LIBRARY)")
    assert torch.__version__ in line and "build it with: " in line


def unbuilt_checkout(folder):
    """A copy of the package without a library, with a setup.py beside it."""
    copy_package(folder)
    (folder / "setup.py").touch()
    return folder


def test_a_checkout_beside_an_installed_copy(tmp_path):
    """python imports the current folder first: the message names the copy that pip installed."""
    checkout, site = unbuilt_checkout(tmp_path / "checkout"), tmp_path / "site-packages"
    (site / "tcgemm").mkdir(parents=True)
    environ = {name: os.environ[name] for name in os.environ if name != "TCGEMM_LIBRARY"}
    command = [sys.executable, "-m", "tcgemm"]

    def error():
        environ["PYTHONPATH"] = str(site)
        process = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True)
        assert process.returncode == 1
        return process.stderr.strip().splitlines()[-1]

    assert error().endswith(
        f"; build it with: cd {checkout} && python setup.py build_ext --inplace, or `make build`"
    )
    (site / "tcgemm" / "libtcgemm.so").touch()
    assert error().endswith(
        f"; this is the checkout in {checkout}, and tcgemm is installed in {site / 'tcgemm'}; run "
        "`tcgemm` or `python -P -m tcgemm`, which import the installed one, or build a library for "
        "the checkout with `make build`"
    )


def test_another_library():
    file = Path(torch.__file__).parent / "lib" / "libc10.so"
    code, line = run("import tcgemm", library=file)
    assert code == 1 and line.startswith(f"ImportError: tcgemm's operator library {file} (from TC")
    assert "registers none of tcgemm's operators" in line and "unset it" in line


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (
            lambda: torch.ops.tcgemm.missing,
            r"ImportError: .* another version of .*: torch.ops.tcgemm.missing is missing; name the",
        ),
        (lambda: tcgemm.missing, "AttributeError: module 'tcgemm' has no attribute 'missing'"),
    ],
)
def test_a_library_without_an_operator(use, error):
    with pytest.raises((ImportError, AttributeError)) as caught, _library.every_operator():
        use()
    assert re.match(error, f"{caught.typename}: {caught.value}")


WITHOUT_AN_OPERATOR = """
import torch._ops
getter = torch._ops._OpNamespace.__getattr__

def without_the_operator(namespace, name):
    if name == {name!r}:
        raise AttributeError(name)
    return getter(namespace, name)

torch._ops._OpNamespace.__getattr__ = without_the_operator
import tcgemm
"""


@pytest.mark.parametrize("name", ["prepare", "_sum_rows", "_linear24", "_pack_weight"])
def test_the_package_asks_for_its_operators(name):
    code, line = run(WITHOUT_AN_OPERATOR.format(name=name))
    assert code == 1 and f"torch.ops.tcgemm.{name} is missing; name the" in line, line


SECOND = """
import sys, torch, tcgemm
first = tcgemm
for name in [name for name in sys.modules if name.split(".")[0] == "tcgemm"]:
    del sys.modules[name]
sys.path.insert(0, {folder!r})
{prepare}
try:
    import tcgemm
except ImportError as error:
    x = torch.ones(2, 2)
    assert torch.equal(first.mm(x, x), x + 1)
    raise error from None
"""


@pytest.mark.parametrize("own_library", [True, False])
def test_a_second_copy_of_the_package(tmp_path, own_library):
    """Loading its library would end the process in torch's registration, before main even ends."""
    package = copy_package(tmp_path)
    prepare = ""
    if own_library:
        shutil.copy(_library.path(), package / "libtcgemm.so")
        prepare = "import os; del os.environ['TCGEMM_LIBRARY']"
    code, line = run(SECOND.format(folder=str(tmp_path), prepare=prepare))
    assert code == 1, line
    assert line.startswith("ImportError: tcgemm's operators are registered in this process already")
    assert str(package) in line and "import one copy" in line


def test_the_library_may_be_loaded_before_the_package():
    file = str(_library.path().resolve())
    code, line = run(f"import torch; torch.ops.load_library({file!r}); import tcgemm")
    assert code == 0, line


def test_reload():
    code, line = run("import importlib, tcgemm; importlib.reload(tcgemm)")
    assert code == 0, line
