"""Shared by the tests of tcgemm.use: operands that are exact, and torch without any use."""

import torch

import tcgemm

from support import reference

AT = (
    *("mm", "mm.out", "addmm", "addmm_", "bmm", "baddbmm.out", "_int_mm", "_scaled_mm"),
    "add.Tensor",
)


def registered_kernels():
    """Every kernel of some aten functions, as torch's dispatcher tells them."""
    return [torch._C._dispatch_dump(f"aten::{name}") for name in AT]


def integers(*shape, dtype=torch.float32, device="cpu", largest=4):
    """Whole numbers: sums of their products are exact in every dtype that is tested."""
    values = torch.randint(-largest, largest + 1, shape, device=device)
    return values.to(dtype)


def by_torch(function, *args, **options):
    """The result of torch's own kernels."""
    with tcgemm.use(dtypes=()):
        return function(*args, **options)


def same(function, *args, count=1, **options):
    """The function gives torch's result, and tcgemm took this many products."""
    expected = by_torch(function, *args, **options)
    with tcgemm.use() as u:
        result = function(*args, **options)
    report = u.report()
    assert report.taken == count and (count == 0 or report.left == 0), report
    reference.assert_exact(result, expected)
    assert result.stride() == expected.stride()
    return report
