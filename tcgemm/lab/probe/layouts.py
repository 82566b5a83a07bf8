"""The layouts that the probe looks for: mma and mma.sp, wgmma, and wmma."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcgemm.lab.probe import layout, layout_wgmma, layout_wmma, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tcgemm.emulate.table import Instruction
    from tcgemm.lab.probe.session import Session

    Measure = Callable[[Session, Instruction], Iterator[dict[str, Any]]]

KINDS = (layout, layout_wgmma, layout_wmma)


def find(arch: str, filter_text: str | None) -> dict[str, tuple[Instruction, Measure]]:
    """Name of a row -> the instruction, and what measures it; ValueError: there is no such row."""
    result: dict[str, tuple[Instruction, Measure]] = {}
    complaint = None
    for kind in KINDS:
        try:
            instructions = kind.instructions(arch, filter_text)
        except ValueError as error:  # another kind may have it
            complaint = complaint or error
            continue
        result |= {rows.label(row): (row, kind.measure) for row in instructions}
    if complaint and not result:
        raise complaint
    return result


def names(arch: str, options: Any) -> list[str]:
    """The names of the rows that are measured."""
    return list(find(arch, options.row))


def measure(session: Session, row: str, options: Any) -> Iterator[dict[str, Any]]:
    """The records of a row."""
    mma, run = find(session.arch, options.row)[row]
    yield from run(session, mma)
