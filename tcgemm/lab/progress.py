"""A progress bar for what takes longer than a few seconds."""

from __future__ import annotations

import contextlib
from typing import Any


def bar(total: int, label: str, unit: str) -> contextlib.AbstractContextManager[Any]:
    """A bar of tqdm that appears after three seconds; without tqdm a line of text, and None.

    Example:
        >>> from tcgemm.lab import progress
        >>> with progress.bar(2, "steps", "step") as shown:
        ...     if shown is not None:
        ...         shown.update(2)
    """
    try:
        from tqdm import tqdm
    except ImportError:
        print(f"  {label}: {total} (for a progress bar: pip install tqdm) ...", flush=True)
        return contextlib.nullcontext()
    return tqdm(total=total, desc=f"  {label}", unit=unit, delay=3, leave=False)
