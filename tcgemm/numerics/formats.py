"""The number formats of tensor cores, computed from the bits of their fields."""

from __future__ import annotations

from typing import NamedTuple

from tcgemm import published
from tcgemm.numerics.table import Table


class Format(NamedTuple):
    """A binary floating-point format.

    Example:
        >>> from tcgemm.numerics.formats import FORMATS
        >>> FORMATS["e4m3"].largest, FORMATS["bf16"].unit_roundoff
        (448.0, 0.00390625)
    """

    exponent_bits: int
    fraction_bits: int
    register_bits: int
    has_infinity: bool = True  # e4m3 has one NaN in the place of Inf, and numbers beside it

    @property
    def bias(self) -> int:
        """What the exponent field has more than the exponent."""
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def smallest_normal(self) -> float:
        """2^(1 - bias)."""
        return 2.0 ** (1 - self.bias)

    @property
    def smallest_subnormal(self) -> float:
        """One unit of the last place of the smallest normal number."""
        return self.smallest_normal * 2.0**-self.fraction_bits

    @property
    def largest(self) -> float:
        """The largest finite number."""
        unit = 2.0**-self.fraction_bits
        if self.has_infinity:
            return (2 - unit) * 2.0**self.bias
        return (2 - 2 * unit) * 2.0 ** (self.bias + 1)

    @property
    def unit_roundoff(self) -> float:
        """Half of the distance from 1 to the next larger number."""
        return 2.0 ** -(self.fraction_bits + 1)


FORMATS = {
    "f32": Format(8, 23, 32),
    "tf32": Format(8, 10, 32),
    "f16": Format(5, 10, 16),
    "bf16": Format(8, 7, 16),
    "e4m3": Format(4, 3, 8, has_infinity=False),
    "e5m2": Format(5, 2, 8),
}


def run() -> Table:
    """The formats, beside table XI of Sun et al."""
    rows, published_rows = [], published.table("003", "XI")
    for name, row in FORMATS.items():
        fields = (1, row.exponent_bits, row.fraction_bits, row.register_bits)
        rows.append(
            {
                "format": name,
                "sign, exponent, fraction, register": "/".join(map(str, fields)),
                "published": "/".join(map(str, published_rows[name].values())),
                "largest": row.largest,
                "smallest normal": row.smallest_normal,
                "smallest subnormal": row.smallest_subnormal,
                "unit roundoff": row.unit_roundoff,
            }
        )
    notes = ["e4m3 has no Inf: the exponent field of all ones holds numbers up to 448, and NaN."]
    return Table(f"Number formats ({published.DOCUMENTS['003'].short}, table XI)", rows, notes)
