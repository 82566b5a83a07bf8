"""Text as HTML. The package html has a table of all characters, which takes half a megabyte."""

from collections.abc import Iterable, Sequence

_NAMED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def escape(text: str) -> str:
    """The text as the content of an HTML element."""
    return text.translate(_NAMED)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of texts as a table."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', heads)}{''.join(line('td', row) for row in rows)}</table>"
