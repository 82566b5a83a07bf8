"""Sets of sizes that others have published.

doc000   Yan, Wang and Chu, "Demystifying Tensor Cores to Optimize Half-Precision Matrix
         Multiply" (IPDPS 2020), figures 6 to 9: squares and six shapes of rectangles, each for
         61 widths W, float16 operands, b column-major. The paper adds in float16; here the same
         sizes are multiplied with float32 sums too.
"""

from __future__ import annotations

from tcgemm.measure.case import Case

WIDTHS = range(1024, 16385, 256)
FAMILIES = {  # name of the figures -> M, N, K in widths
    "WxWxW": (1, 1, 1),
    "2WxWxW": (2, 1, 1),
    "Wx2WxW": (1, 2, 1),
    "WxWx2W": (1, 1, 2),
    "4WxWxW": (4, 1, 1),
    "Wx4WxW": (1, 4, 1),
    "WxWx4W": (1, 1, 4),
}
ACCUMULATIONS = ("f16", "f32")


def doc000() -> list[Case]:
    """The 854 cases: 61 widths, seven families and two accumulators."""
    return [
        Case("mm", "f16", "TN", *(times * width for times in family), accumulation=sums)
        for family in FAMILIES.values()
        for width in WIDTHS
        for sums in ACCUMULATIONS
    ]
