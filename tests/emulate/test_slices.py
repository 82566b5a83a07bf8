"""The sums of slices of k: each by itself, in groups of eight, in the order of k."""

import torch

from tcgemm import emulate

KERNEL = "sm90a_bf16_f32_64x64x64_w1_s12_tn"


def operands(m, n, k):
    return torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16().t()


def mm(a, b, slices=1):
    options = {"out_dtype": torch.float32, "device": "H200"}
    return emulate.mm(a, b, **options, kernel=f"{KERNEL}/{slices}")


def test_slices_are_added_in_groups():
    blocks = 23  # of 64, of which the last is not full
    a, b = operands(5, 9, 64 * blocks - 24)
    for count in (2, 8, 9, 20):
        least, longer = divmod(blocks, count)
        ends = [64 * ((i + 1) * least + min(i + 1, longer)) for i in range(count)]
        starts = [0, *ends[:-1]]
        parts = [mm(a[:, i:j], b[i:j]) for i, j in zip(starts, ends, strict=True)]
        groups = [parts[first : first + 8] for first in range(0, count, 8)]
        expected = [sum(group[1:], group[0]) for group in groups]
        assert torch.equal(mm(a, b, count), sum(expected[1:], expected[0]))


def test_slices_change_bits():
    a, b = operands(16, 16, 2048)
    assert not torch.equal(mm(a, b, 4), mm(a, b))
