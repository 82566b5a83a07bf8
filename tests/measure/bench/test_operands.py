"""The operands that are measured: layouts, storage, rotation past the cache, data."""

import pytest
import torch

import tcgemm
from tcgemm.measure import errors, operands

from support.cases import E4M3, E5M2


@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_layout_letters(layout, batch):
    data = operands.Operands.build(
        layout, 5, 6, 7, dtype=torch.float32, device="cpu", batch=batch, sets=2
    )
    lead = (batch,) if batch > 1 else ()
    a, b, out = data.a[1], data.b[1], data.out[1]
    assert (a.shape, b.shape, out.shape) == ((*lead, 5, 7), (*lead, 7, 6), (*lead, 5, 6))
    assert b.stride()[-2:] == ((1, 7) if layout[0] == "T" else (6, 1))
    assert a.stride()[-2:] == ((1, 5) if layout[1] == "T" else (7, 1))
    assert out.is_contiguous()
    copies = operands.in_layout(layout, a.contiguous().fill_(2), b.contiguous().fill_(3))
    assert [x.stride() for x in copies] == [a.stride(), b.stride()]
    assert (copies[0] == 2).all() and (copies[1] == 3).all()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_sets_are_aligned_and_apart(device):
    pool = operands.Pool(3, (5, 7), torch.float16, device)
    starts = [matrix.data_ptr() for matrix in pool]
    assert len(set(starts)) == 3 and all(matrix.storage_offset() == 0 for matrix in pool)
    assert device == "cpu" or all(start % 512 == 0 for start in starts)


def test_rotation_leaves_the_cache(monkeypatch):
    monkeypatch.setattr(operands, "cache_bytes", lambda device: 60 << 20)
    assert operands.sets_past_cache(1 << 20, "cuda") * (1 << 20) > 120 << 20
    assert operands.sets_past_cache(1 << 30, "cuda") == 2
    assert operands.sets_past_cache(1, "cuda") == operands.MAX_SETS


def test_unknown_layout_is_named():
    with pytest.raises(ValueError, match="'XX' is none of TN, NN, TT, NT"):
        operands.Operands.build("XX", 1, 1, 1, dtype=torch.float32, device="cpu")


@pytest.mark.parametrize("dtype", (E4M3, E5M2, torch.int8, torch.uint8), ids=str)
def test_normal_data_of_8_bits(dtype):
    data = operands.Operands.build("NN", 70, 90, 80, dtype=dtype, device="cpu", sets=2)
    values = data.normal(torch.Generator().manual_seed(1)).a[1].double()
    middle, width = (128, 24) if dtype is torch.uint8 else (0, 24 if dtype is torch.int8 else 1)
    assert abs(values.mean() - middle) < 0.1 * width and 0.7 * width < values.std() < 1.9 * width
    integers = data.integers(4, torch.Generator().manual_seed(1)).b[0].double()
    assert torch.equal(integers, integers.round()) and integers.abs().max() == 4
    assert integers.min() == (0 if dtype is torch.uint8 else -4)
    poison = data.poison().out[0]
    assert poison.dtype is (torch.int32 if not dtype.is_floating_point else torch.bfloat16)
    assert poison.isnan().all() if dtype.is_floating_point else (poison == -(2**31)).all()


def test_spread_data_and_integers():
    data = operands.Operands.build("TN", 40, 30, 600, dtype=torch.float32, device="cpu", sets=2)
    size = data.spread(torch.Generator().manual_seed(1)).a[1].abs()
    assert (size.amax(1) / size.amin(1)).log2().min() > 28
    assert size.min() > 2.0**-60 and size.max() < 2.0**24
    assert not torch.equal(data.a[0], data.a[1])
    data.integers(4, torch.Generator().manual_seed(1), spread=True)
    a, b = data.a[1].double(), data.b[1].double()
    assert a.abs().max() >= 2.0**19 and a[a != 0].abs().min() <= 2.0**-18
    assert torch.equal(a.unsqueeze(-1) * b.unsqueeze(0), (a.unsqueeze(-1) * b.unsqueeze(0)).round())
    assert errors.is_exact(tcgemm.mm(data.a[1], data.b[1], precision="highest"), a, b)
    exponents = torch.arange(-149, 128)  # powers of two are exact
    mantissa, exponents_of = torch.frexp(operands.powers_of_two(exponents))
    assert torch.equal(mantissa, torch.full_like(mantissa, 0.5))
    assert torch.equal(exponents_of, (exponents + 1).to(exponents_of.dtype))
