"""Views of a SparseTensor24: views that stay a matrix are there, all others are refused
as torch refuses what makes no sense, or with to_dense() as the way out.
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm import SparseTensor24

DIMS = (-3, -2, -1, 0, 1, 2, 5)
SIZES = (-2, -1, 0, 1, 4, 8, 16, 32, 64)
SHAPES = [(8, 8), (8, 16), (1, 16), (16, 1)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def sparse(shape):
    return tcgemm.compress24(torch.randn(shape).half(), prune=True)


def assert_refused_or_right(view, w):
    """A view of w equals the view of the dense matrix, and is refused where the dense view is."""
    try:
        expected = view(w.to_dense())
    except (RuntimeError, IndexError):
        expected = None
    try:
        result = view(w)
    except (RuntimeError, IndexError, NotImplementedError) as error:
        assert "INTERNAL" not in str(error)
        assert expected is None or expected.shape != w.shape
        return
    assert expected is not None, "the dense matrix refuses it"
    assert type(result) is SparseTensor24
    assert torch.equal(result.to_dense(), expected) and result.stride() == expected.stride()


@shapes
def test_transposes(shape):
    w = sparse(shape)
    for first, second in itertools.product(DIMS, repeat=2):
        for name in ("transpose", "swapaxes", "swapdims", "movedim"):
            assert_refused_or_right(lambda w, n=name, f=first, s=second: getattr(w, n)(f, s), w)


@shapes
def test_permutations(shape):
    w = sparse(shape)
    for count in range(4):
        for dims in itertools.product(DIMS, repeat=count):
            assert_refused_or_right(lambda w, dims=dims: w.permute(dims), w)


@shapes
def test_views_and_expansions(shape):
    w = sparse(shape)
    for count in range(4):
        for size in itertools.product(SIZES, repeat=count):
            for name in ("view", "reshape"):
                assert_refused_or_right(lambda w, n=name, size=size: getattr(w, n)(size), w)
            if 1 not in shape:  # what would repeat elements is refused
                assert_refused_or_right(lambda w, size=size: w.expand(size), w)


def test_a_batch_of_a_square_is_no_view():
    w = sparse((16, 16))
    for call in (
        lambda: w.view(16, 16, 1),
        lambda: w.expand(16, 16, 16),
        lambda: w.view(16),
        lambda: w.view(-1, -1),
    ):
        with pytest.raises(NotImplementedError, match=r"has no view of shape .*to_dense\(\)"):
            call()
    for call in (lambda: w.permute(0, 0), lambda: w.permute(0)):
        with pytest.raises(RuntimeError, match=r"permute got the dimensions .* pass \(0, 1\)"):
            call()
    with pytest.raises(IndexError, match="dimension 5 is out of range"):
        w.transpose(0, 5)
