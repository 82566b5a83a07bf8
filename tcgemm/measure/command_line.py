"""What the command lines of tcgemm and of its benchmarks share."""

from __future__ import annotations

import argparse
from typing import Any

import torch


def parser(command: str, text: str | None, **options: str) -> argparse.ArgumentParser:
    """The parser of a command. Its help has the lines of the text as they are."""
    return argparse.ArgumentParser(
        prog=command,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,  # pyright: ignore[reportArgumentType]
    )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a measurement. `result` is what it would have returned, as far as it came.

    A command prints the result and lets the interrupt go on.
    """

    def __init__(self, result: Any) -> None:
        super().__init__("interrupted; the attribute `result` has what was measured before")
        self.result = result


def comma(text: str) -> list[str]:
    """The words of a list that commas separate."""
    return [word.strip() for word in text.split(",") if word.strip()]


def default_device() -> str:
    """ "cuda" where torch finds a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"
