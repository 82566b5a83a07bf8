"""What the command lines of tcgemm and of its benchmarks share."""

from __future__ import annotations

import argparse

import torch


def parser(command: str, text: str | None, **options: str) -> argparse.ArgumentParser:
    """The parser of a command. Its help has the lines of the text as they are."""
    return argparse.ArgumentParser(
        prog=command,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,  # pyright: ignore[reportArgumentType]
    )


def comma(text: str) -> list[str]:
    """The words of a list that commas separate."""
    return [word.strip() for word in text.split(",") if word.strip()]


def default_device() -> str:
    """ "cuda" where torch finds a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"
