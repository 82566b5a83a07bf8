"""The sums of slices of k: each by itself, in groups of eight, in the order of k."""

import itertools

import torch

import tcgemm
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


def test_stream_k_divides_each_tile_elsewhere():
    """The parts of the grid, in the order of all k-blocks of the tiles, and their sums in order."""
    m, n, blocks = 70, 1400, 40
    a, b = operands(m, n, 64 * blocks - 24)
    kernel = "sm90a_bf16_f32_64x128x64_w1_s8_tn@1/streamk^T"
    options = {"out_dtype": torch.float32, "device": "H200", "kernel": kernel}
    plan = tcgemm.explain(a, b, **options)
    tiles = -(-n // 64)  # the kernel's rows are those of b^T
    assert (plan.swap_ab, plan.grid, plan.waves) == (True, 132, tiles / 132)
    result = emulate.mm(a, b, **options)
    total = tiles * blocks
    starts = [part * (total // 132) + min(part, total % 132) for part in range(132)]
    # With one column of tiles they come in order, whatever rows are visited together.
    for tile in range(tiles):
        inside = [x - tile * blocks for x in starts if 0 < x - tile * blocks < blocks]
        assert 5 <= len(inside) < plan.slices
        columns = slice(64 * tile, 64 * (tile + 1))
        parts = [
            mm(a[:, 64 * i : 64 * j], b[64 * i : 64 * j, columns])
            for i, j in itertools.pairwise([0, *inside, blocks])
        ]
        assert torch.equal(result[:, columns], sum(parts[1:], parts[0]))
