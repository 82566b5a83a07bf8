"""The kernels of grouped products in bf16, one after the other: groups that end inside tiles."""

import pytest
import torch

import tcgemm

from support.cases import BF16, gpu
from support.grouped import ends_of

# Groups end inside tiles of 64 and 128 rows, inside boxes of 16 rows, and inside k-blocks of 64.
LENGTHS = [1, 63, 0, 64, 65, 130, 7, 16, 0, 200, 33]
SPARE = 29  # rows of no group
DEVICES = [gpu("cuda", mark="sm90")]


def draw(*shape, device):
    return torch.randint(-2, 3, shape, device=device).to(BF16)


def in_groups(function):
    """[function(group, its slice) for each group]"""
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    bounds = zip(starts, LENGTHS, strict=True)
    return [function(i, slice(at, at + length)) for i, (at, length) in enumerate(bounds)]


@pytest.mark.parametrize("columns", [128, 392], ids="{} columns".format)
@pytest.mark.parametrize("transposed", [False, True], ids=["NN", "TN"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_tile_stores_its_own_rows_alone(device, transposed, columns):
    rows, k = sum(LENGTHS) + SPARE, 136
    a = draw(rows, k, device=device)
    b = draw(len(LENGTHS), columns, k, device=device).mT
    b = b if transposed else b.contiguous()
    a[-SPARE:] = float("nan")
    result = tcgemm.grouped_mm(a, b, offs=ends_of(LENGTHS, device=device))
    parts = in_groups(lambda g, part: a[part].double() @ b[g].double())
    expected = torch.cat([*parts, result.new_zeros(SPARE, columns).double()])
    assert torch.equal(result.double(), expected.to(BF16).double())


@pytest.mark.parametrize("k_major", [False, True], ids=["NT", "TN"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_tile_has_the_k_of_its_group_alone(device, k_major):
    depth, rows, columns = sum(LENGTHS) + SPARE, 200, 136
    if k_major:
        a, b = (
            draw(rows, depth + 1, device=device)[:, :depth],
            draw(columns, depth, device=device).t(),
        )
    else:
        a, b = draw(depth, rows, device=device).t(), draw(depth, columns, device=device)
    last = sum(LENGTHS)
    a[:, last:] = b[last:] = float("nan")
    # Every second group has a NaN: its neighbours must not.
    spoiled = [g for g in range(0, len(LENGTHS), 2) if LENGTHS[g]]
    for g in spoiled:
        b[sum(LENGTHS[:g])] = float("inf")
        a[:, sum(LENGTHS[: g + 1]) - 1] = float("nan")
    result = tcgemm.grouped_mm(a, b, offs=ends_of(LENGTHS, device=device))
    parts = in_groups(lambda g, part: a[:, part].double() @ b[part].double())
    for g, expected in enumerate(parts):
        if g in spoiled:
            assert result[g].isnan().all()
        else:
            assert torch.equal(result[g].double(), expected.to(BF16).double())


@pytest.mark.parametrize("kind", ["rows", "columns", "k"])
@pytest.mark.parametrize("device", DEVICES)
def test_nothing_is_stored_outside_of_out_for_any_ends(device, kind):
    generator = torch.Generator().manual_seed(0)
    rows, k, columns, groups = 300, 72, 136, 40
    memory = torch.full((3, groups * k * columns), 7.0, dtype=BF16, device=device)
    shape = {"rows": (rows, columns), "columns": (columns, rows), "k": (groups, k, columns)}[kind]
    size = torch.Size(shape).numel()
    out = memory[1, :size].view(shape)
    a, b = draw(rows, k, device=device), draw(groups, k, columns, device=device)
    for _ in range(20):
        offs = torch.randint(-500, 1000, (groups,), generator=generator).to(device)
        if kind == "rows":
            tcgemm.grouped_mm(a, b, offs=offs, out=out)
        elif kind == "columns":
            tcgemm.grouped_mm(b.mT, a.t(), offs=offs, out=out)
        else:
            tcgemm.grouped_mm(a.t(), draw(rows, columns, device=device), offs=offs, out=out)
    assert torch.all(memory[0] == 7) and torch.all(memory[2] == 7)
    assert torch.all(memory[1, size:] == 7)
