"""A drawing as SVG text. The same calls give the same text on every machine."""

from html import escape

INK, SOFT, GRID = "#1f2328", "#59636e", "#d1d9e0"
BLUE, ORANGE, GREEN, RED, PURPLE = "#1f5fa8", "#d1602b", "#3d8c50", "#c2334d", "#7b4fa3"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def number(value: float) -> str:
    """At most two decimals, since the last bits of a float differ between machines."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Drawing:
    """Shapes on a white ground, which is readable on light and dark pages."""

    def __init__(self, width: int, height: int, title: str, description: str):
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" font-family="{FONT}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
        ]
        self.rect(0, 0, width, height, "#ffffff", radius=6)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        stroke: str | None = None,
        radius: float = 0,
    ) -> None:
        place = f'x="{number(x)}" y="{number(y)}"'
        size = f'width="{number(width)}" height="{number(height)}"'
        border = f' stroke="{stroke}"' if stroke else ""
        corner = f' rx="{number(radius)}"' if radius else ""
        self.lines.append(f'<rect {place} {size} fill="{fill}"{border}{corner}/>')

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = GRID, width: float = 1
    ) -> None:
        ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        self.lines.append(f'<line {ends} stroke="{stroke}" stroke-width="{number(width)}"/>')

    def circle(self, x: float, y: float, radius: float, fill: str, opacity: float = 1) -> None:
        place = f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
        self.lines.append(f'<circle {place} fill="{fill}" fill-opacity="{number(opacity)}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, stroke: str = SOFT) -> None:
        """An arrow that points down or to the right."""
        self.line(x1, y1, x2, y2, stroke, 1.5)
        x, y = number(x2), number(y2)
        head = "l -4 -8 h 8 z" if x1 == x2 else "l -8 -4 v 8 z"
        self.lines.append(f'<path d="M {x} {y} {head}" fill="{stroke}"/>')

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        size: float = 13,
        fill: str = INK,
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
        halo: bool = False,
    ) -> None:
        """halo: a white border, for a text that crosses a line."""
        style = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}" fill="{fill}"'
        style += "" if anchor == "start" else f' text-anchor="{anchor}"'
        style += ' font-weight="600"' if bold else ""
        style += ' font-family="ui-monospace, Menlo, Consolas, monospace"' if mono else ""
        style += ' stroke="#ffffff" stroke-width="3" paint-order="stroke"' if halo else ""
        self.lines.append(f"<text {style}>{escape(content)}</text>")

    def svg(self) -> str:
        return "\n".join([*self.lines, "</svg>"]) + "\n"
