"""Files that a checkout has beside the package, and a wheel inside of it.

setup.py copies them into the wheel: PACKED there has the same pairs of folders.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def folders(of_checkout: str, of_wheel: str) -> tuple[Path, Path]:
    """Where the files are in a checkout, from its root, and in a wheel, from the package."""
    return PACKAGE.parent / of_checkout, PACKAGE / of_wheel


def folder(of_checkout: str, of_wheel: str, pattern: str, kind: str) -> Path:
    """The first of these folders that has files of a pattern; RuntimeError if none has.

    kind: what the files are, for the error.
    """
    places = folders(of_checkout, of_wheel)
    for place in places:
        if any(place.glob(pattern)):
            return place
    raise RuntimeError(f"There are no {kind} in {places[0]} or {places[1]}.")
