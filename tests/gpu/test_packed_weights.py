"""Every kernel with a packed weight: exact products in every format, of ragged sizes."""

import itertools

import pytest
import torch

import tcgemm

from support.catalog_rows import built_rows, parametrized
from support.packed_weight_cases import Case, exact_product, product, with_exact_elements

KERNELS = pytest.mark.parametrize(
    "row", parametrized(row for row in built_rows() if row.weight_bits)
)
FOUR_BITS = (
    Case("int4", 64),
    Case("int4", 32, "points"),
    Case("int4", None, "points"),
    Case("int4", 128, "offsets"),
    Case("int4", 32, "offsets"),
    Case("nf4", 64),
    Case("mxfp4", 32),
    Case("nvfp4", 16),
)
EIGHT_BITS = (Case("int8", None), Case("int8", 32), Case("e4m3", 64))
# The weight's rows, K, and the rows of x.
SIZES = ((256, 1024, 5), (130, 640, 17), (40, 128, 70), (1, 384, 8), (1000, 2176, 33))


def kernel(row):
    """The dtype of x, the formats, and the most rows of x that the kernel takes."""
    formats = FOUR_BITS if row.weight_bits == 4 else EIGHT_BITS
    return row.types.a, formats, row.tile[0] if row.gemv else 1 << 20


def make(case, rows, k, n, dtype):
    """x of whole numbers and a weight whose products are exact in float32."""
    packed = with_exact_elements(case.pack(torch.randn(n, k, device="cuda").to(dtype)))
    return torch.randint(-2, 3, (rows, k), device="cuda").to(dtype), packed


def check(out, x, packed, case):
    """float32 holds all digits of the sums, but not of the sums of nf4 and e4m3."""
    sums = exact_product(x, packed)
    if case.format in ("nf4", "e4m3"):
        size = x.double().abs() @ packed.dequantize(torch.float32).double().abs().t()
        assert ((out.double() - sums.double()).abs() <= 2.0**-19 * size).all()
    else:
        assert torch.equal(out, sums)


@KERNELS
def test_every_kernel_is_exact(row):
    dtype, formats, limit = kernel(row)
    for case in formats:
        for n, k, rows in SIZES:
            x, packed = make(case, min(rows, limit), k, n, dtype)
            out = product(x, packed, row.name, out_dtype=torch.float32)
            check(out, x, packed, case)


@KERNELS
def test_many_tiles_of_a_cta(row):
    """A tile begins in the first stage, or in the one behind the last stage of the tile before. It
    has fewer blocks than there are stages, or more. Warpgroups that divide one k-block have none,
    or one."""
    dtype, formats, limit = kernel(row)
    for case in (formats[0], formats[-1]):
        for k in (64, 192, 320, 704):
            x, packed = make(case, min(20, limit), k, 128 * 300, dtype)
            check(product(x, packed, row.name, out_dtype=torch.float32), x, packed, case)


@KERNELS
def test_k_that_ends_in_a_block(row):
    """The memory behind the last elements of x has NaN, which the kernel must not multiply."""
    dtype, formats, limit = kernel(row)
    for case in [case for case in formats if case.group_size is None]:
        for k in (8, 37, 72, 200, 1000, 2041):
            x, packed = make(case, min(20, limit), k, 136, dtype)
            padded = torch.full((x.shape[0], k + 72 - k % 8), float("nan"), device="cuda").to(dtype)
            for strided in (x, padded[:, :k].copy_(x)):
                check(product(strided, packed, row.name, out_dtype=torch.float32), x, packed, case)


@KERNELS
def test_a_table_that_the_kernel_before_writes(row):
    """That kernel lets this one start early, and takes long. A constant table is read at once."""
    dtype, formats, limit = kernel(row)
    if formats is not FOUR_BITS:
        pytest.skip("8 bits have no table")
    depth = 1 << 17
    x, packed = make(Case("fp4", 64), min(8, limit), 1024, 520, dtype)
    words = packed.arranged().clone()
    table = words[:64].view(torch.float32).reshape(1, 16)
    one = torch.zeros(1, depth, device="cuda", dtype=torch.bfloat16)
    one[0, 0] = 1
    tables = [torch.zeros(depth, 16, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    for factor, matrix in enumerate(tables, 1):
        matrix[0] = factor * table[0]
    whole = exact_product(x, packed)
    options = {"kernel_name": row.name, "out_dtype": torch.float32, **packed.order._asdict()}
    results = []
    for _ in range(20):
        for matrix in tables:
            tcgemm.mm(one, matrix, out=table, out_dtype=torch.float32)
            results.append(torch.ops.tcgemm.packed_mm(x, words, **options))
    for i, out in enumerate(results):
        assert torch.equal(out, (1 + i % 2) * whole), i
    for _ in range(20):
        out = product(x, packed, row.name, out_dtype=torch.float32, constant_b=True)
        assert torch.equal(out, whole)


@KERNELS
def test_strides_of_x_and_of_the_result(row):
    dtype, formats, limit = kernel(row)
    x, packed = make(formats[0], min(24, limit), 320, 136, dtype)
    whole = exact_product(x, packed).to(dtype)
    padded = torch.zeros(x.shape[0], 328, device="cuda", dtype=dtype)[:, :320]
    odd = torch.zeros(x.shape[0], 333, device="cuda", dtype=dtype)[:, 3:323]
    for strided in (padded, odd, torch.zeros_like(x.t().contiguous()).t()):
        strided.copy_(x)
        assert torch.equal(product(strided, packed, row.name), whole)
    for out in (torch.empty_like(whole.t().contiguous()).t(), torch.empty_like(whole)):
        words = packed.order._asdict()
        torch.ops.tcgemm.packed_mm.out(x, packed.arranged(), kernel_name=row.name, **words, out=out)
        assert torch.equal(out, whole)


@KERNELS
def test_a_result_by_columns_fills_every_box_of_a_tile(row):
    """Its rows are columns of the kernel's result, which are stored in boxes of 64 or of 32."""
    dtype, formats, limit = kernel(row)
    columns = row.tile[0] if row.gemv else row.tile[1]
    x, packed = make(formats[0], min(2 * columns, limit), 128, 136, dtype)
    whole = exact_product(x, packed).to(dtype)
    out = torch.full_like(whole.t().contiguous(), float("nan")).t()
    words = packed.order._asdict()
    torch.ops.tcgemm.packed_mm.out(x, packed.arranged(), kernel_name=row.name, **words, out=out)
    assert torch.equal(out, whole)


@KERNELS
def test_epilogue(row):
    dtype, formats, limit = kernel(row)
    x, packed = make(formats[0], min(24, limit), 512, 200, dtype)
    sums = exact_product(x, packed)
    bias, residual = torch.ones(200, device="cuda"), torch.full_like(sums, 2.0)
    options = {"bias": bias, "residual": residual, "alpha": 0.5, "out_dtype": torch.float32}
    out = product(x, packed, row.name, activation="relu", **options)
    assert torch.equal(out, (0.5 * sums + 1).relu() + 2)
    c = torch.full_like(sums, 3.0)
    assert torch.equal(
        product(x, packed, row.name, c=c, beta=2.0, out_dtype=torch.float32), sums + 6
    )


@KERNELS
def test_a_cluster_adds_slices(row):
    dtype, formats, _ = kernel(row)
    if not row.sums_in_cluster:
        pytest.skip("this kernel has no slices")
    for case in formats[:2]:
        for rows, slices in itertools.product((64, 37), (2, 3, 4)):
            x, packed = make(case, rows, 1024, 264, dtype)
            whole, kernel_name = exact_product(x, packed), f"{row.name}/{slices}c"
            assert torch.equal(product(x, packed, kernel_name, out_dtype=torch.float32), whole)
            assert torch.equal(product(x, packed, kernel_name), whole.to(dtype))
            bias = torch.ones(264, device="cuda", dtype=dtype)
            out = product(x, packed, kernel_name, bias=bias, activation="relu")
            assert torch.equal(out, (whole + 1).relu().to(dtype))


@KERNELS
def test_clusters_of_three_of_32_tiles(row):
    """More clusters than the 30 of four that run at one time."""
    dtype, formats, _ = kernel(row)
    if row.tile != (128, 64, 64) or row.arch == "sm80":
        pytest.skip("one kernel of each type shows it")
    x, packed = make(formats[0], 64, 768, 4096, dtype)
    plan = tcgemm.explain(x, packed.t(), kernel=f"{row.name}/3c")
    assert (plan.slices, plan.cluster_adds, plan.grid) == (3, True, 96)
    for _ in range(3):
        out = product(x, packed, f"{row.name}/3c", out_dtype=torch.float32)
        assert torch.equal(out, exact_product(x, packed))


@KERNELS
def test_another_kernel_adds_slices(row):
    """The partial sums lie by rows of the result, whose rows and columns may be odd in number. A
    slice begins inside of a group."""
    dtype, formats, _ = kernel(row)
    if not row.divides_k:
        pytest.skip("this kernel has no slices")
    for case in [case for case in formats[:4] if case.format != "e4m3"]:  # its sums are rounded
        for n, k, rows in ((264, 1024, 64), (131, 1280, 37), (1000, 2176, 300), (40, 640, 1)):
            x, packed = make(case, rows, k, n, dtype)
            whole = exact_product(x, packed)
            residual = torch.randint(-9, 9, (rows, n), device="cuda").float()
            terms = {"bias": torch.ones(n, device="cuda"), "residual": residual, "alpha": 0.5}
            for slices in (2, 3, 5, 9):
                kernel_name = f"{row.name}/{slices}"
                assert torch.equal(product(x, packed, kernel_name, out_dtype=torch.float32), whole)
                assert torch.equal(product(x, packed, kernel_name), whole.to(dtype))
                out = product(
                    x, packed, kernel_name, activation="relu", out_dtype=torch.float32, **terms
                )
                assert torch.equal(out, (0.5 * whole + 1).relu() + residual)
                out = torch.full((n, rows), 7.0, device="cuda", dtype=dtype).t()
                words = packed.order._asdict() | {"kernel_name": kernel_name}
                torch.ops.tcgemm.packed_mm.out(x, packed.arranged(), **words, out=out)
                assert torch.equal(out, whole.to(dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 8, 9, 16, 32, 64, 100, 257, 1024])
@pytest.mark.parametrize("shape", [(4096, 4096), (1536, 8960), (131, 96)], ids=str)
def test_the_choice_of_the_planner_is_exact(shape, rows):
    for case in (*FOUR_BITS, *EIGHT_BITS):
        if case.group_size and shape[1] % case.group_size:
            continue
        x, packed = make(case, rows, shape[1], shape[0], torch.bfloat16)
        out = product(x, packed, out_dtype=torch.float32)
        check(out, x, packed, case)


@pytest.mark.gpu
def test_random_weights_are_as_accurate_as_16_bits():
    """The error against the exact weight comes from rounding elements, scales and a table."""
    unit = 2.0**-9
    for case in (*FOUR_BITS, *EIGHT_BITS):
        for rows in (4, 16, 128, 600):
            packed = case.pack(torch.randn(512, 2048, device="cuda"))
            x = torch.randn(rows, 2048, device="cuda").bfloat16()
            out = product(x, packed, out_dtype=torch.float32).double()
            w = packed.dequantize(torch.float32).double()
            size = x.double().abs() @ w.abs().t()
            if case.zeros == "offsets":  # the offset is rounded by itself
                size += x.double().abs().sum(1, keepdim=True) * packed.offsets.double().abs().max()
            error = (out - x.double() @ w.t()).abs()
            assert (error <= (3 * unit + 2048**0.5 * 2.0**-22) * size).all(), (case, rows)


@pytest.mark.gpu
def test_a_nan_in_the_activation_stays_in_its_row():
    x, packed = make(FOUR_BITS[0], 12, 1024, 256, torch.bfloat16)
    x[3, 17] = float("nan")
    for rows in (8, 12):
        out = tcgemm.linear(x[:rows], packed)
        assert out[3].isnan().all() and not out[[i for i in range(rows) if i != 3]].isnan().any()


@pytest.mark.gpu
def test_a_wrong_code_is_seen():
    """The comparison fails if one code of the weight is another one."""
    x, packed = make(FOUR_BITS[0], 8, 1024, 256, torch.bfloat16)
    x[0] = 1
    before = exact_product(x, packed)
    packed.codes[77, 300] ^= 1
    assert not torch.equal(product(x, packed, out_dtype=torch.float32), before)
    assert torch.equal(product(x, packed, out_dtype=torch.float32), exact_product(x, packed))
