"""The rules of pack_weight written with torch's operations, as a reference for _pack_weight."""

import math

import torch

from tcgemm.operands.packed.formats import E8M0, FORMATS, table_of

E4M3 = torch.float8_e4m3fn
FACTORS = (1.0, *(step / 50 for step in range(54, 26, -1) if step != 50))
POWERS = (1.0, 2.0, 0.5)


class Rules:
    """codes (n, k) one by one, scales (n, G) and zero points of w."""

    def __init__(self, w, format, group, scale_dtype, *, zeros=False, mse=False, table=None):
        self.form = FORMATS[format]
        self.dtype, self.zeros = scale_dtype, zeros
        self.table = table_of(self.form, "cpu") if table is None else torch.tensor(table)
        self.limit = self.form.limit or float(self.table.abs().max())
        w = w.float().cpu()
        self.whole = self.global_scale(w) if format == "nvfp4" else None
        w = w.unflatten(-1, (-1, group))
        scales, points = self.scaled(w, 1.0)
        if mse:
            factors = POWERS if scale_dtype is E8M0 else FACTORS
            least = self.error(w, scales, points)
            for factor in factors[1:]:
                tried, other_points = self.scaled(w, factor)
                error = self.error(w, tried, other_points)
                better = error < least
                least = torch.where(better, error, least)
                points = torch.where(better, other_points, points)
                scales = converted(torch.where(better, tried.float(), scales.float()), scale_dtype)
        self.scales, self.zero_points = scales, points if zeros else None
        self.codes = self.code(w, scales, points)[0].flatten(1)

    def global_scale(self, w):
        amax = w[w.isfinite()].abs().max()
        return torch.where(amax == 0, 1.0, amax / torch.tensor(self.limit * 448.0))

    def scaled(self, w, factor):
        low, high = w.amin(-1).clamp(max=0), w.amax(-1).clamp(min=0)
        if self.zeros:
            scale = (high - low) / torch.tensor(15.0) * factor
        else:
            scale = w.abs().amax(-1) / torch.tensor(self.limit) * factor
        scales = self.stored(scale)
        zeros = torch.zeros_like(low)
        if self.zeros:
            zeros = (-low * factor / self.divisor(scales)).round().clamp(0, 15).nan_to_num(0)
        return scales, zeros

    def stored(self, scale):
        scale = scale.masked_fill(scale == 0, 1.0)
        if self.dtype is E8M0:
            byte = (torch.frexp(scale).exponent + 126).clamp(0, 254)
            return byte.masked_fill(~(scale < math.inf), 255).to(torch.uint8).view(E8M0)
        if self.whole is not None:
            scale = scale / self.whole
        finite = scale < math.inf
        if self.dtype is E4M3:
            scale = scale.clamp(max=448.0)
        smallest = torch.finfo(self.dtype).smallest_normal * torch.finfo(self.dtype).eps
        wide = scale.to(self.dtype).float()
        wide = wide.masked_fill((wide == 0) & (scale > 0), smallest)
        return converted(wide.masked_fill(~(finite & (wide < math.inf)), math.nan), self.dtype)

    def divisor(self, scales):
        return scales.float() if self.whole is None else scales.float() * self.whole

    def error(self, w, scales, points):
        values = self.code(w, scales, points)[1]
        difference = values.double() * self.divisor(scales).double().unsqueeze(-1) - w.double()
        return difference.float().double().square().sum(-1)

    def code(self, w, scales, points):
        """(the codes, the numbers that they stand for before the scale)."""
        quotient = (w / self.divisor(scales).unsqueeze(-1)).nan_to_num(0.0)
        if self.form.indexes:
            return self.nearest(quotient)
        if self.form.name == "e4m3":
            codes = quotient.clamp(-448, 448).to(E4M3)
            return codes, codes.float()
        zeros = points.unsqueeze(-1)
        if self.zeros:
            codes = (quotient.clamp(-1e6, 1e6).round() + zeros).clamp(0, 15)
            return codes, codes - zeros
        codes = quotient.clamp(-1e6, 1e6).round().clamp(-self.limit - 1, self.limit)
        return codes, codes

    def nearest(self, quotient):
        """The value at the least distance; of two such values the one with an even code."""
        values, order = self.table.double().sort(stable=True)
        distance = (quotient.double().unsqueeze(-1) - values).abs()
        least = distance.amin(-1, keepdim=True)
        candidates = torch.where(distance == least, order % 2, 2)
        # Equal values have the first of their codes.
        position = candidates.argmin(-1)
        first = torch.searchsorted(values, values[position])
        return order[first], values[first].float()


def converted(scales, dtype):
    """Scales in their dtype, with one NaN: torch makes several of bfloat16."""
    stored = scales.to(dtype)
    if dtype is torch.bfloat16:
        stored.view(torch.int16)[stored.isnan()] = 0x7FC0
    return stored


def unpacked(packed):
    """The codes (N, K) of a PackedWeight one by one."""
    codes, k = packed.codes.cpu(), packed.shape[1]
    if codes.dtype is not torch.uint8:
        return codes
    codes = torch.stack([codes & 15, codes >> 4], -1).flatten(1)[:, :k]
    signed = packed.format == "int4" and packed.zero_points is None
    return (codes.to(torch.int8) ^ 8) - 8 if signed else codes
