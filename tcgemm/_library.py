"""Finds libtcgemm.so and loads it into torch, or says in one sentence why that failed.

The library knows no Python and no single torch version (LibTorch stable ABI), so one file serves
every torch from OLDEST_TORCH on; it registers its operators as torch.ops.tcgemm.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

OLDEST_TORCH = (2, 11)
_OF_PACKAGE = "quantized_linear"  # the operator that the package itself registers
PACKAGE = Path(__file__).resolve().parent
_loaded = False


def path() -> Path:
    """The library file: TCGEMM_LIBRARY if it is set, else the one inside the package."""
    return Path(os.environ.get("TCGEMM_LIBRARY") or PACKAGE / "libtcgemm.so")


def rebuild(variables: str = "") -> str:
    """How to build the library, for a checkout or for an installed package."""
    if (PACKAGE.parent / "setup.py").is_file():
        return f"cd {PACKAGE.parent} && {variables}python setup.py build_ext --inplace"
    options = "--force-reinstall --no-deps --no-build-isolation"
    return f"{variables}pip install {options} <tcgemm's source folder>"


def _installed_copy() -> Path | None:
    """The folder of another tcgemm on sys.path, one that has a library; None without one."""
    folders = (Path(entry or ".").resolve() / "tcgemm" for entry in sys.path)
    return next((each for each in folders if (each / "libtcgemm.so").is_file()), None)


def _cure() -> str:
    """What to do where the library file is not there."""
    is_checkout = (PACKAGE.parent / "setup.py").is_file()
    copy = _installed_copy() if is_checkout and not _origin() else None
    if copy is None:
        return f"build it with: {rebuild()}{', or `make build`' * is_checkout}"
    return (
        f"this is the checkout in {PACKAGE.parent}, and tcgemm is installed in {copy}; run "
        "`tcgemm` or `python -P -m tcgemm`, which import the installed one, or build a library for "
        "the checkout with `make build`"
    )


def no_cuda_kernel() -> str:
    """The sentence for a library without CUDA kernels."""
    return f"no CUDA kernel was built; this builds them: {rebuild('TCGEMM_CUDA=1 ')}"


def _check_torch() -> None:
    digits = torch.__version__.split("+")[0].split(".")[:2]
    if tuple(int(digit) for digit in digits) < OLDEST_TORCH:
        raise ImportError(
            f"tcgemm needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or later, but this is torch "
            f"{torch.__version__} ({torch.__file__}); install a newer one, for example with: "
            f'pip install "torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}"'
        )


def _origin() -> str:
    return " (from TCGEMM_LIBRARY)" if os.environ.get("TCGEMM_LIBRARY") else ""


def _check_single(file: Path) -> None:
    """A second library that registers the same operators ends the process in its static
    initialisation. A library that something else loaded, without the package, may be used."""
    libraries = torch.ops.loaded_libraries
    again = os.path.realpath(file) in libraries and not hasattr(torch.ops.tcgemm, _OF_PACKAGE)
    if again or not hasattr(torch.ops.tcgemm, "mm"):
        return
    others = sorted(library for library in libraries if "tcgemm" in library)
    raise ImportError(
        f"tcgemm's operators are registered in this process already (libraries: "
        f"{', '.join(others) or 'unknown'}), so the package in {PACKAGE} cannot be imported "
        "beside the one that did it; import one copy of tcgemm, once, in a process."
    )


def _other_operators(file: Path, what: str) -> ImportError:
    return ImportError(
        f"tcgemm's operator library {file}{_origin()} registers {what}; name the libtcgemm.so of "
        f"this package in TCGEMM_LIBRARY or unset it, or build the library with: {rebuild()}"
    )


@contextmanager
def every_operator() -> Iterator[None]:
    """The modules that are imported inside find every operator that they use; ImportError.

    They reach each operator as an attribute of torch.ops.tcgemm.
    """
    try:
        yield
    except AttributeError as error:
        if error.obj is not torch.ops.tcgemm:
            raise
        what = f"another version of tcgemm's operators: torch.ops.tcgemm.{error.name} is missing"
        raise _other_operators(path(), what) from error


def load() -> None:
    """Registers the operators; ImportError names torch's version, the file and a remedy."""
    global _loaded
    if _loaded:  # importlib.reload(tcgemm)
        return
    _check_torch()
    file = path()
    if not file.is_file():
        raise ImportError(
            f"tcgemm's operator library {file}{_origin()} is not there, so nothing could be loaded "
            f"into torch {torch.__version__}; {_cure()}"
        )
    _check_single(file)
    try:
        torch.ops.load_library(str(file))
    except (OSError, RuntimeError) as error:
        raise ImportError(
            f"tcgemm's operator library {file} could not be loaded into torch "
            f"{torch.__version__}: {error}; build it again for this machine with: {rebuild()}"
        ) from error
    if not hasattr(torch.ops.tcgemm, "mm"):
        raise _other_operators(file, "none of tcgemm's operators")
    _loaded = True
