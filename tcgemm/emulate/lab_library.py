"""Finds libtcgemm_lab.so and loads it on first use: the emulator of tensor cores, and the ladders.

The library has C functions and does not know torch. The kernels of the ladders are in it if it was
built with CUDA. TCGEMM_LAB_LIBRARY names another file; a build with TCGEMM_BUILD_LAB=0 has none.
"""

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path

from tcgemm import _library

FILE = "libtcgemm_lab.so"


def path() -> Path:
    """The library file: TCGEMM_LAB_LIBRARY if it is set, else the one inside the package."""
    return Path(os.environ.get("TCGEMM_LAB_LIBRARY") or _library.PACKAGE / FILE)


@functools.cache
def _library_file() -> ctypes.CDLL:
    """The loaded library; ImportError names the file and a remedy."""
    file, suffix = path(), _origin()
    if not file.is_file():
        raise ImportError(
            f"This part of tcgemm needs the library {file}{suffix}, which is not there; build it "
            f"without TCGEMM_BUILD_LAB=0: {_library.rebuild()}"
        )
    try:
        return ctypes.CDLL(str(file))
    except OSError as error:
        raise ImportError(
            f"tcgemm's library {file}{suffix} could not be loaded: {error}; build it again with: "
            f"{_library.rebuild()}"
        ) from error


def _origin() -> str:
    return " (from TCGEMM_LAB_LIBRARY)" if os.environ.get("TCGEMM_LAB_LIBRARY") else ""


def has(name: str) -> bool:
    """Does the library have this function? A CPU build lacks those that launch kernels."""
    return hasattr(_library_file(), f"tcgemm_lab_{name}")


@functools.cache
def function(name: str, argument: type[ctypes.Structure]) -> Callable[..., int]:
    """A function of the library, whose last argument points to such a structure.

    ImportError: the library is not there, or is of a version with another structure.
    """
    library = _library_file()
    own, common = (getattr(library, f"tcgemm_lab_{x}", None) for x in (f"{name}_size", "size"))
    size = own() if own else common(name.encode()) if common else None
    if size != ctypes.sizeof(argument):
        raise ImportError(
            f"tcgemm's library {path()}{_origin()} is of another version than this package; build "
            f"it again with: {_library.rebuild()}"
        )
    return library[f"tcgemm_lab_{name}"]
