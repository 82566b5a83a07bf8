"""The picture of a call: the steps from tcgemm.linear to the kernel, and the folder of each."""

import textwrap

from benchmarks.report import style
from benchmarks.report.style import BLUE, GREEN, GRID, ORANGE, PURPLE, SOFT

TITLE = "The way of a call"
# (step, folder, its colour), and what happens there
STEPS = {
    ("tcgemm.linear(x, w, bias)", "tcgemm/ops", BLUE): (
        "Python reads the options, and what torch says about autocast and the precision of float32."
    ),
    ("torch.ops.tcgemm.linear", "torch's dispatcher", BLUE): (
        "Autograd, torch.compile, torch.func and vmap see an operator with a schema."
    ),
    ("Checks", "csrc/ops", ORANGE): (
        "Shapes, dtypes, devices, memory that overlaps. An error names the tensor and the remedy."
    ),
    ("Plan", "csrc/plan", ORANGE): (
        "The planner estimates the time of each kernel that fits. tcgemm.explain prints its answer."
    ),
    ("Launch", "csrc/launch", PURPLE): (
        "Operands that TMA cannot read are copied first. The kernel gets its tensor "
        "maps and its grid."
    ),
    ("Kernel", "csrc/kernels", GREEN): (
        "TMA loads tiles, wgmma multiplies them. The epilogue adds bias, activation, "
        "residual, and rounds once."
    ),
}
LEFT, BOX, STEP, TOP, HEIGHT = 24, 250, 76, 64, 50  # pixels; HEIGHT is that of a box
CPU = "A tensor on the CPU: csrc/cpu multiplies, and the steps below are left out."


def draw() -> "style.Figure":
    figure, axes = style.canvas(800, TOP + STEP * len(STEPS) + 8, TITLE)
    for index, ((name, folder, colour), words) in enumerate(STEPS.items()):
        y, middle = TOP + STEP * index, LEFT + BOX / 2
        style.box(axes, (LEFT, y, BOX, HEIGHT), colour, f"{name}\n{folder}")
        axes.plot([LEFT + BOX + 8, LEFT + BOX + 30], [y + HEIGHT / 2] * 2, color=GRID)
        axes.text(LEFT + BOX + 40, y + HEIGHT / 2, textwrap.fill(words, 52), va="center")
        if index < len(STEPS) - 1:
            style.arrow(axes, middle, y + HEIGHT, y + STEP)
        if name == "Checks":
            axes.text(middle + 12, y + HEIGHT + 17, CPU, size="small", color=SOFT)
    return figure
