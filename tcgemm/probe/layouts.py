"""The layouts that the probe looks for: those of mma and mma.sp, of wgmma, and of wmma."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcgemm.probe import layout, layout_wgmma, layout_wmma, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tcgemm.emulate.table import Instruction
    from tcgemm.probe.session import Session

    Measure = Callable[[Session, Instruction], Iterator[dict[str, Any]]]

KINDS = (layout, layout_wgmma, layout_wmma)


def found(arch: str, wanted: str | None) -> dict[str, tuple[Instruction, Measure]]:
    """Name of a row -> the instruction, and what measures it; ValueError: there is no such row."""
    chosen: dict[str, tuple[Instruction, Measure]] = {}
    complaint = None
    for kind in KINDS:
        try:
            known = kind.instructions(arch, wanted)
        except ValueError as error:  # another kind may have it
            complaint = complaint or error
            continue
        chosen |= {rows.label(row): (row, kind.measure) for row in known}
    if complaint and not chosen:
        raise complaint
    return chosen


def names(arch: str, options: Any) -> list[str]:
    """The names of the rows that are measured."""
    return list(found(arch, options.row))


def measure(session: Session, row: str, options: Any) -> Iterator[dict[str, Any]]:
    """The records of a row."""
    known, how = found(session.arch, options.row)[row]
    yield from how(session, known)
