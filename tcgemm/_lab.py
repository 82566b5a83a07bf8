"""Finds libtcgemm_lab.so and loads it on first use: the emulator of tensor cores.

The library has C functions and knows neither torch nor CUDA. TCGEMM_LAB_LIBRARY names another file;
a build with TCGEMM_BUILD_LAB=0 has none.
"""

import ctypes
import functools
import os
from pathlib import Path

from tcgemm import _library

FILE = "libtcgemm_lab.so"
_FUNCTIONS = ("tcgemm_lab_instruction", "tcgemm_lab_mma", "tcgemm_lab_epilogue")


def path() -> Path:
    """The library file: TCGEMM_LAB_LIBRARY if it is set, else the one inside the package."""
    return Path(os.environ.get("TCGEMM_LAB_LIBRARY") or _library.PACKAGE / FILE)


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library; ImportError names the file and a remedy."""
    file = path()
    chosen = " (from TCGEMM_LAB_LIBRARY)" if os.environ.get("TCGEMM_LAB_LIBRARY") else ""
    if not file.is_file():
        raise ImportError(
            f"tcgemm's emulator needs the library {file}{chosen}, which is not there; build it "
            f"without TCGEMM_BUILD_LAB=0: {_library.rebuild()}"
        )
    try:
        loaded = ctypes.CDLL(str(file))
    except OSError as error:
        raise ImportError(
            f"tcgemm's library {file}{chosen} could not be loaded: {error}; build it again with: "
            f"{_library.rebuild()}"
        ) from error
    missing = [name for name in _FUNCTIONS if not hasattr(loaded, name)]
    if missing:
        raise ImportError(
            f"tcgemm's library {file}{chosen} has no function {missing[0]}, so it is of another "
            f"version; build it again with: {_library.rebuild()}"
        )
    return loaded
