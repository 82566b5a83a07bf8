"""torch's _grouped_mm in tcgemm.use: all kinds of groups against torch, exact on small integers."""

import pytest
import torch
from torch.nn.functional import grouped_mm

import tcgemm

from support import reference
from support.cases import BF16, F16, F32, F64
from support.uses import by_torch, integers, same

ENDS = torch.tensor([8, 8, 24], dtype=torch.int32)  # the second group is empty
KINDS = ("rows", "columns", "k", "batches")


def whole(*shape, dtype, column_major=False):
    """A matrix whose lines are whole 16 bytes: torch asks for them."""
    if column_major:
        return whole(*shape[:-2], shape[-1], shape[-2], dtype=dtype).mT
    padded = integers(*shape[:-1], shape[-1] + -shape[-1] % 8, dtype=dtype)
    return padded[..., : shape[-1]]


def operands(kind, dtype, n=32, column_major=(False, True)):
    """(a, b, offs) of 24 rows, columns or k in three groups."""
    shapes = {
        "rows": ((24, 16), (3, 16, n)),
        "columns": ((3, n, 16), (16, 24)),
        "k": ((16, 24), (24, n)),
        "batches": ((3, 8, 16), (3, 16, n)),
    }
    a, b = (
        whole(*shape, dtype=dtype, column_major=columns)
        for shape, columns in zip(shapes[kind], column_major, strict=True)
    )
    return a, b, None if kind == "batches" else ENDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", (BF16, F16, F32))
def test_every_kind_of_groups(kind, dtype):
    for n in (32, 31, 1):  # torch's results have lines of whole 16 bytes
        for columns in ((False, True), (False, False), (True, True), (True, False)):
            a, b, offs = operands(kind, dtype, n, columns)
            report = same(grouped_mm, a, b, offs=offs)
            assert [row.function for row in report.rows] == ["_grouped_mm"]
    same(grouped_mm, a, b, offs=offs, out_dtype=dtype)


def test_the_report_counts_all_groups_together():
    for kind, sizes in (
        ("rows", (1, 24, 32, 16)),
        ("columns", (1, 32, 24, 16)),
        ("k", (1, 16, 32, 24)),
        ("batches", (3, 8, 32, 16)),
    ):
        a, b, offs = operands(kind, BF16)
        report = same(grouped_mm, a, b, offs=offs)
        assert report.rows[0].sizes == sizes and report.rows[0].dtype == "bf16"
        assert report.flops_taken == report.rows[0].flops


@pytest.mark.parametrize("n", (32, 31))
def test_what_is_in_no_group_is_zero(n):
    ends = torch.tensor([8, 8, 20], dtype=torch.int32)
    x = integers(24, 16, dtype=BF16)
    x[20:] = float("nan")
    w = whole(3, 16, n, dtype=BF16, column_major=True)
    x, w = x.requires_grad_(), w.requires_grad_()
    with tcgemm.use() as u:
        y = grouped_mm(x, w, offs=ends)
        y.backward(whole(24, n, dtype=BF16))
    assert u.report().left == 0 and u.report().taken == 3
    assert not y[20:].any() and not x.grad[20:].any() and not w.grad[1].any()
    reference.assert_exact(y[8:20], x[8:20].detach() @ w[2].detach())
    assert not w.grad.isnan().any()
    wide = whole(16, 24, dtype=BF16)
    with tcgemm.use():
        assert not grouped_mm(w.detach().mT, wide, offs=ends)[:, 20:].any()


def test_gradients_are_torchs():
    def gradients(kind):
        a, b, offs = operands(kind, F32)
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        result = grouped_mm(a, b, offs=offs)
        result.backward(torch.ones_like(result))
        return a.grad, b.grad

    for kind in KINDS:
        torch.manual_seed(1)
        expected = by_torch(gradients, kind)
        torch.manual_seed(1)
        with tcgemm.use() as u:
            for gradient, by_loop in zip(gradients(kind), expected, strict=True):
                reference.assert_exact(gradient, by_loop)
                assert gradient.stride() == by_loop.stride()
        assert u.report().taken == 3 and u.report().left == 0


def test_a_sum_of_nothing_is_zeros():
    x, w = torch.ones(24, 16, dtype=BF16), torch.ones(3, 16, 32, dtype=BF16)
    with tcgemm.use() as u:
        assert not grouped_mm(x[:, :0], w[:, :0], offs=ENDS).any()
        assert not grouped_mm(x[:0].t(), w[0, :0], offs=ENDS * 0).any()
    assert u.report().taken == 2
    with tcgemm.use() as u:
        assert grouped_mm(x[:0], w, offs=ENDS * 0).shape == (0, 32)
    assert u.report().taken == 0 and {*u.report().reasons} == {"the result or the sum is empty"}


def test_what_torch_refuses_is_torchs_error():
    a, b, offs = operands("rows", BF16)
    for args, options in (
        ((a, b), {}),
        ((a, b), {"offs": offs.long()}),
        ((a, b), {"offs": offs[None]}),
        ((a, b), {"offs": offs[:2]}),
        ((a, b), {"offs": offs, "bias": torch.zeros(3, 32, dtype=BF16)}),
        ((a, b), {"offs": offs, "out_dtype": F32}),
        ((a, b.to(F16)), {"offs": offs}),
        ((a.to(F64), b.to(F64)), {"offs": offs}),
        ((a[:, :15].contiguous(), b[:, :15]), {"offs": offs}),  # rows of 30 bytes
        ((b, b.mT), {"offs": offs}),
    ):
        with pytest.raises(RuntimeError) as expected:
            by_torch(torch._grouped_mm, *args, **options)
        with tcgemm.use() as u, pytest.raises(RuntimeError) as error:
            torch._grouped_mm(*args, **options)
        assert str(error.value) == str(expected.value)
        assert u.report().taken == 0


def test_other_ends_of_equal_shape_are_taken():
    a, b, offs = operands("rows", BF16)
    with tcgemm.use() as u:
        grouped_mm(a, b, offs=torch.tensor([8, 8, 30], dtype=torch.int32))  # torch counts to 24
        grouped_mm(a, b, offs=offs)
    counts = {row.reason: row.calls for row in u.report().rows if row.function == "_grouped_mm"}
    assert counts.pop(None) == 1
    (reason,) = counts
    assert reason.startswith("tcgemm.grouped_mm: offs[2] is 30, but there are 24 rows of a")


def test_the_choice():
    a, b, offs = operands("rows", BF16)
    rows = [{"dtype": "bf16", "layout": "TN", "m": 24, "n": 32, "k": 16, "ratios": {"torch": 2.0}}]
    for choice, reason in (
        ({"dtypes": ("f16",)}, "torch.bfloat16 is not among dtypes"),
        ({"min_size": 20}, "m, n or k is below min_size, 20"),
        ({"table": rows}, "the table has no row of bf16 in groups in layout TN"),
    ):
        with tcgemm.use(**choice) as u:
            grouped_mm(a, b, offs=offs)
        kept = {row.reason for row in u.report().rows if row.function == "_grouped_mm"}
        assert kept == {reason}


@pytest.mark.parametrize("n", (32, 31))
def test_a_compiled_function(n):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w, ends: grouped_mm(x, w, offs=ends).relu(), fullgraph=True)
    a, b, offs = operands("rows", BF16, n)
    with tcgemm.use() as u:
        result = compiled(a, b, offs)
    assert u.report().taken == 1 and u.report().left == 0
    reference.assert_exact(result, by_torch(grouped_mm, a, b, offs=offs).relu())
    before = u.report().taken
    compiled(a, b, offs)
    assert u.report().taken == before
