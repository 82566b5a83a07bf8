"""The walk of the persistent kernels over the tiles: each tile of each matrix once."""

import pytest
import torch

import tcgemm

from support import reference

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("batch", "m", "n"),
    [
        (1000, 40, 24),  # a tile or two a matrix: a step of the walk skips matrices
        (501, 300, 200),  # several tiles a matrix, and a grid that is no multiple of them
        (1, 5000, 3000),  # the last group of the raster order has fewer rows
        (3, 5000, 1000),
        (1, 33000, 16),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_every_tile_is_computed_once(batch, m, n, dtype):
    a = torch.randint(-3, 4, (batch, m, 32), device="cuda").to(dtype)
    b = torch.randint(-3, 4, (batch, n, 32), device="cuda").to(dtype).mT
    out = torch.full((batch, m, n), float("nan"), dtype=dtype, device="cuda")
    tcgemm.bmm(a, b, out=out)
    reference.assert_exact(out, reference.exact(a, b))
