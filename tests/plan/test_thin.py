"""Plans of products of many rows, few columns and a short k."""

import pytest
import torch

import tcgemm

from support.plan_cases import H200

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ROWS = 1 << 20


def explained(m, n, k, dtype=torch.bfloat16, device=H200, **options):
    a, b = (torch.empty(*shape, dtype=dtype, device="meta") for shape in ((m, k), (k, n)))
    return tcgemm.explain(a, b, device=device, **options)


def is_thin(plan):
    return plan.kernel.endswith("_thin")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ("H200", "H100"))
def test_many_rows_and_few_columns_are_thin(dtype, device):
    """Measured on an H200: docs/dev/kernels/thin.md."""
    sizes = ((1, 1), (3, 3), (3, 64), (64, 3), (8, 16), (16, 16), (32, 32), (24, 40))
    for n, k in (*sizes, *(((64, 64),) if device == H200 else ())):
        plan = explained(ROWS, n, k, dtype, device)
        assert is_thin(plan) and not plan.copies, (n, k)
        assert ("64x32x64" in plan.kernel) == (n <= 32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_others_are_not(dtype):
    """More columns, a longer k, fewer rows than tiles for all multiprocessors, batches."""
    for m, n, k in ((ROWS, 65, 16), (ROWS, 16, 65), (8000, 16, 16), (100, 16, 16)):
        assert not is_thin(explained(m, n, k, dtype)), (m, n, k)
    a, b = (torch.empty(3, *shape, dtype=dtype, device="meta") for shape in ((ROWS, 8), (8, 8)))
    assert not is_thin(tcgemm.explain(a, b, device=H200))
    with tcgemm.batch_invariant():
        assert not is_thin(explained(ROWS, 16, 16, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_transposed_product_is_thin_as_well(dtype):
    plan = explained(16, ROWS, 24, dtype)
    assert is_thin(plan) and plan.swap_ab


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_epilogue_changes_the_kernel(dtype):
    plain = explained(ROWS, 24, 40, dtype).kernel
    bias = torch.empty(24, dtype=dtype, device="meta")
    residual = torch.empty(ROWS, 24, dtype=dtype, device="meta")
    for options in ({"activation": "gelu"}, {"residual": residual}, {"alpha": 2.0}):
        assert explained(ROWS, 24, 40, dtype, bias=bias, **options).kernel == plain


def test_other_gpus_have_other_kernels():
    assert not is_thin(explained(ROWS, 16, 16, device="A100"))
