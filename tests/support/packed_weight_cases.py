"""The packed weights that tests walk: every format, group size and kind of zero."""

from typing import NamedTuple

import torch

import tcgemm

TABLE = [
    -1.0,
    -0.7,
    -0.5,
    -0.25,
    -0.125,
    0.0,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.625,
    0.75,
    0.875,
    1.0,
    2.0,
]


class Case(NamedTuple):
    """One kind of packed weight."""

    format: str
    group_size: int | None
    zeros: str = "none"

    def pack(self, w, method="nearest", **options):
        """w packed; offsets are made from a weight with zero points."""
        if self.format == "table":
            options["table"] = TABLE
        points = self.zeros != "none"
        options |= {"method": method, "zero_points": points}
        packed = tcgemm.pack_weight(w, self.format, self.group_size, **options)
        if self.zeros != "offsets":
            return packed
        offsets = (8 - packed.zero_points.to(packed.scales.dtype)) * packed.scales
        return tcgemm.PackedWeight.from_parts(
            packed.codes,
            packed.scales,
            "int4",
            k=w.shape[1],
            group_size=self.group_size,
            offsets=offsets,
        )


def with_exact_elements(packed):
    """The weight with scales that are powers of two and a table that 16 bits hold: no element is
    rounded, so kernels that round elements, scales or nothing have equal weights."""
    exponents = packed.scales.float().log2().round().clamp(max=8)  # 2^9 is beyond e4m3
    packed.scales = torch.exp2(exponents).to(packed.scales.dtype)
    if packed.table is not None:
        packed.table = packed.table.bfloat16().float()
    if packed.global_scale is not None:
        packed.global_scale = torch.ones_like(packed.global_scale)
    if packed.offsets is not None:
        steps = (packed.offsets.float() / packed.scales.float()).round()
        packed.offsets = (steps * packed.scales.float()).to(packed.offsets.dtype)
    return packed


GROUPS = (32, 64, 128, None)
CASES = (
    *(Case("int4", size, zeros) for size in GROUPS for zeros in ("none", "points", "offsets")),
    *(Case(name, size) for name in ("int8", "e4m3", "nf4") for size in (64, None)),
    *(Case("fp4", 32), Case("table", 128), Case("mxfp4", 32), Case("nvfp4", 16)),
)
IDS = [f"{case.format}-{case.group_size or 'row'}-{case.zeros}" for case in CASES]


def bits(tensor):
    """The bytes of a tensor, which compare NaN as well."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def product(x, packed, name=None, **options):
    """x times the weight, by the kernel of this name."""
    words = packed.order._asdict()
    return torch.ops.tcgemm.packed_mm(x, packed.arranged(), kernel_name=name, **words, **options)


def exact_product(x, packed):
    """x times the elements of the weight, in float64, rounded once to float32."""
    return (x.double() @ packed.dequantize(torch.float32).double().t()).float()
