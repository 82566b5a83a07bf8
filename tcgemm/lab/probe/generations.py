"""The generations of tensor cores: what each architecture has of types and instructions."""

from __future__ import annotations

from tcgemm import emulate, published
from tcgemm.lab.probe import rows
from tcgemm.numerics.table import Table

CAPABILITIES = {
    "Volta": "7.0",
    "Turing": "7.5",
    "Ampere": "8.0, 8.6",
    "Ada": "8.9",
    "Hopper": "9.0",
}
SPARSE = ("mma.sp", "wgmma.sp")
TYPES = ("f64", "tf32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1")
INSTRUCTIONS = ("wmma", "ldmatrix", "mma", "mma.sp", "wgmma", "wgmma.sp")


def _joined(names: set[str], order: tuple[str, ...]) -> str:
    return " ".join(name for name in order if name in names) or "-"


def table() -> Table:
    """What the tensor cores of each architecture have: table I of Sun et al., from our rows.

    A type is in the table if one of the architecture's own instructions multiplies it; an
    instruction that ptxas emulates does not count.
    """
    cores = published.table("003", "I")
    lines = []
    for arch, capability in CAPABILITIES.items():
        own = [row for row in emulate.instructions(arch) if row.is_native]
        families = {row.family for row in own} | ({"ldmatrix"} if arch != "Volta" else set())
        sparse = {row.input for row in own if row.family in SPARSE}
        there = cores.get(arch, {})
        peaks = rows.PEAKS.get(arch, {})
        lines.append(
            {
                "architecture": arch,
                "capability": capability,
                "tensor cores an SM": there.get("tensor cores"),
                "products of one": there.get("products"),
                "f16 FMA/clk/SM": peaks.get("f16"),
                "types": _joined({row.input for row in own}, TYPES),
                "2:4 types": _joined(sparse, TYPES),
                "instructions": _joined(families, INSTRUCTIONS),
            }
        )
    notes = [
        "Tensor cores, and the products of float16 that one makes in a clock: table I of "
        f"{published.DOCUMENTS['003'].short}, - where it has none. The other columns are those of "
        "tcgemm.emulate.instructions().",
        "f16 FMA/clk/SM: of compute capability 8.0 and 9.0, by all tensor cores of an SM.",
    ]
    return Table("The generations of tensor cores", lines, notes)
