"""_pack_weight beside the same rules in torch's operations, and its bits on every device."""

import pytest
import torch

import tcgemm

from support.cases import DEVICES
from support.packed_weight_cases import TABLE, bits
from support.packed_weight_rounding import E4M3, E8M0, Rules, unpacked

OPS = torch.ops.tcgemm
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# format, group size, zero points
KINDS = (
    *(("int4", size, False) for size in (32, 64, 128, None)),
    *(("int4", size, True) for size in (32, 128, None)),
    *((name, size, False) for name in ("int8", "e4m3") for size in (64, None)),
    *((name, size, False) for name in ("nf4", "fp4", "table") for size in (32, None)),
    *(("mxfp4", 32, False), ("nvfp4", 16, False)),
)
KIND = pytest.mark.parametrize(("format", "size", "zeros"), KINDS, ids=str)
FIXED = {"mxfp4": E8M0, "nvfp4": E4M3}


def weight(k, dtype, device="cpu"):
    """Groups of every kind: usual, zero, of one sign, tiny, large, with ties, and not finite."""
    w = torch.randn(24, k)
    w[1] = 0
    w[2], w[3] = w[2].abs(), -w[3].abs()
    w[4] *= 2.0**-20
    w[5] *= 2.0**10
    w[6] = torch.arange(k) % 17 - 8.0
    w[7] = (torch.arange(k) % 29 - 14) / 2.0
    w[8, ::3] = 0
    w[9, 0] = float("nan")
    w[10, k - 1] = float("-inf")
    w[11] = -0.0
    return w.to(dtype).to(device)


def extremes(k, dtype):
    """Near the limits of quotients by a reciprocal: tiny and huge groups, and tiny elements."""
    w = torch.randn(6, k)
    w *= 2.0 ** torch.tensor([-60.0, -62.0, -100.0, 59.0, 70.0, 0.0]).unsqueeze(1)
    w[5, ::2] *= 2.0**-85
    return w.to(dtype)


def pack(w, format, size, zeros, method="nearest", **options):
    options |= {"table": TABLE} if format == "table" else {}
    return tcgemm.pack_weight(w, format, size, zero_points=zeros, method=method, **options)


def same(x, y):
    return (x is None and y is None) or torch.equal(bits(x.cpu()), bits(y.cpu()))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("method", ["nearest", "mse"])
@KIND
def test_the_bits_are_those_of_the_rules(format, size, zeros, method, dtype):
    for k in (128, 384) if size else (1, 7, 40, 257, 640):
        w = weight(k, dtype)
        for scale_dtype in (FIXED[format],) if format in FIXED else FLOATS:
            options = {} if format in FIXED else {"scale_dtype": scale_dtype}
            packed = pack(w, format, size, zeros, method, **options)
            table = TABLE if format == "table" else None
            options = {"zeros": zeros, "mse": method == "mse", "table": table}
            rules = Rules(w, format, size or k, scale_dtype, **options)
            assert same(packed.scales, rules.scales)
            if zeros:
                assert torch.equal(packed.zero_points, rules.zero_points.to(torch.uint8))
            codes = unpacked(packed)
            if format == "e4m3":
                assert same(codes, rules.codes)
            else:
                assert torch.equal(codes, rules.codes.to(codes.dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@KIND
def test_a_gpu_has_the_bits_of_the_cpu(format, size, zeros, dtype):
    for k in (128, 384, 4096) if size else (1, 7, 40, 257, 640, 11008):
        w = weight(k, dtype)
        shifted = torch.zeros(24, k + 9, dtype=dtype)[:, 1 : k + 1]
        shifted.copy_(w)
        for strided in (w, w.t().contiguous().t(), shifted, extremes(k, dtype)):
            for method in ("nearest", "mse"):
                on_cpu = pack(strided, format, size, zeros, method)
                on_gpu = pack(strided.cuda(), format, size, zeros, method)
                for name in ("codes", "scales", "zero_points", "global_scale"):
                    assert same(getattr(on_gpu, name), getattr(on_cpu, name)), (k, method, name)


@pytest.mark.gpu
def test_quotients_near_the_boundaries_of_a_table():
    """Tiny elements of a usual group: a table may have boundaries between them."""
    table = sorted(sign * 2.0**power for sign in (-1, 1) for power in (-88, -86, -84, -82, -20, 0))
    table = [*table[:6], 0.0, *table[6:], 2.0**-10, 2.0**-9, 2.0**-8]
    w = torch.randn(64, 512) * 2.0 ** torch.randint(-90, 2, (64, 512)).float()
    for dtype in (torch.bfloat16, torch.float32):
        on_cpu = tcgemm.pack_weight(w.to(dtype), "table", 32, table=table)
        on_gpu = tcgemm.pack_weight(w.to(dtype).cuda(), "table", 32, table=table)
        assert same(on_gpu.codes, on_cpu.codes) and same(on_gpu.scales, on_cpu.scales)


@pytest.mark.parametrize("device", DEVICES)
def test_any_strides(device):
    w = torch.randn(48, 256, device=device).bfloat16()
    for strided in (w.t().contiguous().t(), torch.cat([w, w], 1)[:, :256], w[::2], w[:, ::2]):
        packed, whole = (pack(x, "int4", 32, True) for x in (strided, strided.contiguous()))
        for name in ("codes", "scales", "zero_points"):
            assert same(getattr(packed, name), getattr(whole, name))


@pytest.mark.parametrize("device", DEVICES)
def test_the_operator_in_tests_of_torch(device):
    w = torch.randn(8, 64, device=device)
    book = torch.zeros(3, 16, device=device)
    whole = torch.ones((), device=device)
    for arguments in (
        (w, None, None, "int4", 32, 7.0, "float16", True, True),
        (w, None, None, "int8", 64, 127.0, "float32"),
        (w, book, None, "table4", 32, 4.0, "e8m0"),
        (w, book, whole, "table4", 16, 6.0, "e4m3"),
    ):
        torch.library.opcheck(OPS._pack_weight.default, arguments)


def test_a_wrong_rule_is_seen():
    """The comparison fails if one code is another one."""
    w = weight(128, torch.float32)
    packed, rules = pack(w, "int4", 32, False), Rules(w, "int4", 32, torch.float32)
    packed.codes[5, 17] ^= 16
    assert not torch.equal(unpacked(packed), rules.codes.to(torch.int8))
