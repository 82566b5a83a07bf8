"""How a product reads its options: the words and numbers of a call are read once."""

import pytest
import torch

import tcgemm
from tcgemm.ops import options


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(options, "_known", {})


def _count_reads(monkeypatch):
    reads = []
    read = options.read
    monkeypatch.setattr(options, "read", lambda *call: reads.append(call) or read(*call))
    return reads


def test_equal_options_are_read_once(monkeypatch):
    reads = _count_reads(monkeypatch)
    a, b = torch.randn(4, 8), torch.randn(8, 3)
    expected = torch.relu(2 * a @ b)
    for c in (torch.ones(4, 3), torch.zeros(4, 3)):
        result = tcgemm.mm(a, b, activation="relu", alpha=2.0, out_dtype="float32", residual=c)
        torch.testing.assert_close(result, expected + c, rtol=1e-5, atol=1e-5)
    assert len(reads) == 1


def test_each_function_has_its_own_options():
    a, b, c = torch.randn(4, 8), torch.randn(8, 3), torch.randn(4, 3)
    tcgemm.addmm(c, a, b, beta=0.5)
    with pytest.raises(TypeError, match=r"tcgemm\.mm: there is no option 'beta'"):
        tcgemm.mm(a, b, beta=0.5)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_an_equal_number_of_a_wrong_type(name):
    """complex(2.25) equals 2.25. The operators refuse it, and it is not kept."""
    a, b, c = torch.ones(2, 4), torch.ones(4, 3), torch.ones(2, 3)
    with pytest.raises(TypeError, match=f"{name} is .2.25.0j."):
        tcgemm.addmm(c, a, b, **{name: complex(2.25)})
    expected = torch.addmm(c, a, b, **{name: 2.25})
    torch.testing.assert_close(tcgemm.addmm(c, a, b, **{name: 2.25}), expected)


@pytest.mark.parametrize("scale", ["scale_a", "scale_out", "zero_a"])
def test_tensors_are_not_kept(scale):
    a, b = torch.randint(-9, 9, (4, 8), dtype=torch.int8), torch.ones(8, 3, dtype=torch.int8)
    kind = torch.int32 if scale == "zero_a" else torch.float32
    for value in (2, 3):
        tensor = torch.tensor(value, dtype=kind)
        result = tcgemm.mm(a, b, **{scale: tensor}, out_dtype=torch.float32)
        product = (a.float() - value if scale == "zero_a" else a.float() * value) @ b.float()
        torch.testing.assert_close(result, product)
    assert not options._known


def test_what_is_kept_has_a_bound(monkeypatch):
    monkeypatch.setattr(options, "_MAX_KNOWN", 4)
    a, b = torch.ones(2, 4), torch.ones(4, 3)
    for step in range(10):
        assert tcgemm.mm(a, b, alpha=float(step))[0, 0] == 4 * step
        assert len(options._known) <= 4
