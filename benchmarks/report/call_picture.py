"""The picture of a call: the steps from tcgemm.linear to the kernel, and the folder of each."""

from benchmarks.report.svg import BLUE, GREEN, GRID, ORANGE, PURPLE, SOFT, Drawing

TITLE = "The way of a call"
# (step, folder, what happens there, colour, height)
STEPS = (
    (
        "tcgemm.linear(x, w, bias)",
        "tcgemm/ops",
        (
            "Python reads the options, and what torch says",
            "about autocast and the precision of float32.",
        ),
        BLUE,
    ),
    (
        "torch.ops.tcgemm.linear",
        "torch's dispatcher",
        ("Autograd, torch.compile, torch.func and vmap", "see an operator with a schema."),
        BLUE,
    ),
    (
        "Checks",
        "csrc/ops",
        (
            "Shapes, dtypes, devices, memory that overlaps.",
            "An error names the tensor and the remedy.",
        ),
        ORANGE,
    ),
    (
        "Plan",
        "csrc/plan",
        (
            "The planner estimates the time of each kernel",
            "that fits. tcgemm.explain prints its answer.",
        ),
        ORANGE,
    ),
    (
        "Launch",
        "csrc/launch",
        (
            "Operands that TMA cannot read are copied first.",
            "The kernel gets its tensor maps and its grid.",
        ),
        PURPLE,
    ),
    (
        "Kernel",
        "csrc/kernels",
        (
            "TMA loads tiles, wgmma multiplies them. The epilogue",
            "adds bias, activation, residual, and rounds once.",
        ),
        GREEN,
    ),
)
WIDTH, LEFT, BOX, STEP, TOP = 800, 24, 250, 76, 64
HEIGHT = 50  # of a box
CPU = "A tensor on the CPU: csrc/cpu multiplies, and the steps below are left out."


def draw() -> str:
    floor = TOP + STEP * len(STEPS)
    text = "; ".join(f"{name}, {folder}: {' '.join(words)}" for name, folder, words, _ in STEPS)
    drawing = Drawing(WIDTH, floor + 8, TITLE, text)
    drawing.text(LEFT, 34, TITLE, size=18, bold=True)
    for index, (name, folder, words, colour) in enumerate(STEPS):
        y = TOP + STEP * index
        drawing.rect(LEFT, y, BOX, HEIGHT, colour, radius=6)
        middle = LEFT + BOX / 2
        drawing.text(middle, y + 22, name, size=14, fill="#ffffff", anchor="middle", bold=True)
        drawing.text(middle, y + 40, folder, size=12, fill="#ffffff", anchor="middle", mono=True)
        drawing.line(LEFT + BOX + 8, y + HEIGHT / 2, LEFT + BOX + 30, y + HEIGHT / 2, GRID, 2)
        for line, sentence in enumerate(words):
            drawing.text(LEFT + BOX + 40, y + 21 + 19 * line, sentence, size=14)
        if name != STEPS[-1][0]:
            drawing.arrow(middle, y + HEIGHT, middle, y + STEP - 1)
        if name == "Checks":
            drawing.text(middle + 12, y + HEIGHT + 17, CPU, size=12, fill=SOFT)
    return drawing.svg()
