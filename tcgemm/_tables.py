"""Rows of texts as the lines of a table: for a terminal, or in Markdown."""

from collections.abc import Iterable, Sequence


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """The lines of columns. A character of `sides` aligns a column: "<" left, ">" right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    columns = list(zip(sides, widths, strict=True))
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, (side, width) in zip(row, columns, strict=True)
        ).rstrip()
        for row in rows
    ]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [
        "|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in (heads, *rows)
    ]
    lines.insert(1, "|---" * len(heads) + "|")
    return "\n".join(lines)
