"""A picture of the roofline: what each memory allows, over the operations a byte of a tile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tcgemm import _plots
from tcgemm.lab.model import roofline

if TYPE_CHECKING:
    from pathlib import Path

    from tcgemm.lab.model.gpus import Costs

INTENSITIES = [2 ** (step / 16) for step in range(16 * 3, 16 * 10 + 1)]  # 8 to 1024


def draw(costs: Costs, folder: Path) -> Path:
    """Writes a PNG file into a folder; its path. ValueError says what to install."""
    _plots.make_folder(folder)
    path = folder / _plots.file_name("roofline", costs.name)
    rates = {name: rate for name, rate in roofline.roofs(costs).items() if rate}
    title = f"Roofline of {costs.name} ({costs.source})"
    with _plots.axes_of(path, title) as axes:
        colours = _plots.colours(rates)
        for name, rate in rates.items():
            roof = [min(intensity * rate, costs.tensor) / 1e12 for intensity in INTENSITIES]
            label = f"{name}, {rate / 1e9:.0f} GB/s"
            axes.plot(INTENSITIES, roof, color=colours[name], linewidth=1.4, label=label)
        if costs.simt:
            axes.axhline(costs.simt / 1e12, color="grey", linestyle="--", label="float16 units")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        bottom = 1.1 * axes.get_ylim()[0]
        for m, n in roofline.BLOCKS:
            of_block = roofline.intensity(m, n)
            axes.axvline(of_block, color="grey", linewidth=0.5)
            axes.text(of_block, bottom, f"{m}x{n}", rotation=90, fontsize=7)
        axes.set(xlabel="operations a byte", ylabel="TFLOP/s")
    return path
