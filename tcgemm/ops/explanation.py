"""The answers of explain, check_layout and info.report: text that notebooks show as it prints."""

import html
from typing import Any


class Text(str):
    """A str of several lines. As the last line of a notebook cell it is shown as print shows it."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


class Explanation(Text):
    """The text of explain or check_layout, and what it says as attributes.

    All attributes but text's own are None where nothing is launched, as for an empty result.

    Attributes:
        device (str): the GPU that the answer is for.
        kernel (str), config_index (int): the kernel's name, and its row of info.catalog().
        layout (str): how a and b are stored, such as "TN (a K-major, b K-major)".
        transposed (bool): the kernel computes out^T = b^T a^T.
        copies (str): the operands that are copied before the kernel runs: "", "a", "b" or "ab".
        tile (tuple): (m, n, k) of a tile. stages, threads, cluster, grid (int), waves (float).
        epilogue, store_path (str): what happens to the accumulators, and how they are stored.
        workspace (int): bytes of device memory that the call takes while it runs.
        flops, bytes (float): the work, and the device memory that it reads and writes.
        compute_microseconds, memory_microseconds, microseconds (float): estimates of the
            arithmetic, of the memory traffic and of the whole; of one product.
        products (int): how many products run one after another, 1 where the batch is one launch.
        bound (str): "compute", "memory" or "launch". why (str): the reason for the kernel.
    """

    device: str | None
    kernel: str | None
    config_index: int | None
    layout: str | None
    transposed: bool | None
    copies: str | None
    tile: tuple[int, int, int] | None
    stages: int | None
    threads: int | None
    cluster: int | None
    grid: int | None
    waves: float | None
    workspace: int | None
    epilogue: str | None
    store_path: str | None
    flops: float | None
    bytes: float | None
    compute_microseconds: float | None
    memory_microseconds: float | None
    microseconds: float | None
    products: int | None
    bound: str | None
    why: str | None

    def __new__(cls, text: str, fields: dict[str, Any] | None = None):
        self = super().__new__(cls, text)
        given = fields or {}
        for name in cls.__annotations__:
            value = given.get(name)
            setattr(self, name, tuple(value) if isinstance(value, list) else value)
        return self

    @property
    def fields(self) -> dict[str, Any]:
        """All attributes by name: a row of a table."""
        return {name: getattr(self, name) for name in type(self).__annotations__}

    def _repr_html_(self) -> str:
        first = html.escape(self.splitlines()[0])
        if self.kernel is None:
            return super()._repr_html_()
        shown = {
            "kernel": self.kernel,
            "layout": self.layout,
            "tile": " x ".join(map(str, self.tile)),
            "grid": f"{self.grid} blocks, {self.waves:.2f} waves",
            "epilogue": self.epilogue,
            "estimate": f"{self.microseconds:.1f} us, bound by {self.bound}",
            "why": self.why,
        }
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in shown.items()
        )
        return (
            f"<p><b>{first}</b></p><table>{rows}</table>"
            f"<details><summary>all of it</summary>{super()._repr_html_()}</details>"
        )
