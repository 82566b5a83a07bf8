"""Finds libtcgemm.so and loads it into torch, or says in one sentence why that failed.

The library knows no Python and no single torch version (LibTorch stable ABI), so one file serves
every torch from OLDEST_TORCH on; it registers its operators as torch.ops.tcgemm.
"""

import os
from pathlib import Path

import torch

OLDEST_TORCH = (2, 11)
PACKAGE = Path(__file__).resolve().parent


def path() -> Path:
    """The library file: TCGEMM_LIBRARY if it is set, else the one inside the package."""
    return Path(os.environ.get("TCGEMM_LIBRARY") or PACKAGE / "libtcgemm.so")


def rebuild() -> str:
    """How to build the library, for a checkout or for an installed package."""
    if (PACKAGE.parent / "setup.py").is_file():
        return f"cd {PACKAGE.parent} && python setup.py build_ext --inplace"
    return "pip install --force-reinstall --no-deps --no-build-isolation <tcgemm's source folder>"


def _check_torch() -> None:
    digits = torch.__version__.split("+")[0].split(".")[:2]
    if tuple(int(digit) for digit in digits) < OLDEST_TORCH:
        raise ImportError(
            f"tcgemm needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or later, but this is torch "
            f"{torch.__version__} ({torch.__file__}); install a newer one, for example with: "
            f'pip install "torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}"'
        )


def load() -> None:
    """Registers the operators; ImportError names torch's version, the file and a remedy."""
    _check_torch()
    file = path()
    if not file.is_file():
        chosen = " (from TCGEMM_LIBRARY)" if os.environ.get("TCGEMM_LIBRARY") else ""
        raise ImportError(
            f"tcgemm's operator library {file}{chosen} is not there, so nothing could be loaded "
            f"into torch {torch.__version__}; build it with: {rebuild()}"
        )
    try:
        torch.ops.load_library(str(file))
    except (OSError, RuntimeError) as error:
        raise ImportError(
            f"tcgemm's operator library {file} could not be loaded into torch "
            f"{torch.__version__}: {error}; build it again for this machine with: {rebuild()}"
        ) from error
