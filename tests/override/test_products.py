"""Every function of torch that tcgemm.use takes, against torch, exact on small integers.

Whatever tcgemm does not take must be torch's own result, or torch's own error.
"""

import random
import warnings

import pytest
import torch
import torch.nn.functional as F

import tcgemm

from support import reference
from support.cases import BF16, E4M3, E5M2, F16, F32, F64, FLOATS, S8
from support.uses import by_torch, integers, same

SHAPES = ((4, 6, 5), (1, 9, 16), (17, 3, 33), (32, 16, 64))
DTYPES = (BF16, F16, F32, F64)


def strided(values, step):
    """The same values with other strides: row-major, transposed, with a gap, with a pitch."""
    if step % 4 == 1:
        return values.mT.contiguous().mT
    if step % 4 == 2:
        wide = values.new_full((*values.shape[:-1], values.shape[-1] * 2), 7)
        wide[..., ::2] = values
        return wide[..., ::2]
    if step % 4 == 3:
        wide = values.new_full((*values.shape[:-1], values.shape[-1] + 3), 7)
        wide[..., 1:-2] = values
        return wide[..., 1:-2]
    return values


def operands(m, n, k, dtype, batch=(), step=0):
    a, b = integers(*batch, m, k, dtype=dtype), integers(*batch, k, n, dtype=dtype)
    return strided(a, step), strided(b, step // 4)


def addends(m, n, batch=()):
    yield from ((n,), (1, n), (m, 1), (m, n), (1, 1), (1,), ())
    if batch:
        yield from ((*batch, m, n), (*batch, 1, n), (1, m, n))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", range(16))
def test_mm_and_bmm(dtype, step):
    m, n, k = SHAPES[step % 4]
    same(torch.mm, *operands(m, n, k, dtype, step=step))
    same(torch.bmm, *operands(m, n, k, dtype, batch=(3,), step=step))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (2, 1.0), (-1.0, 2), (0, 3), (True, True)])
def test_addmm_and_baddbmm(dtype, beta, alpha):
    for step, shape in enumerate(addends(17, 3)):
        c = integers(*shape, dtype=dtype)
        a, b = operands(17, 3, 33, dtype, step=step)
        same(torch.addmm, c, a, b, beta=beta, alpha=alpha)
    for step, shape in enumerate(addends(4, 6, (2,))):
        c = integers(*shape, dtype=dtype)
        a, b = operands(4, 6, 5, dtype, (2,), step)
        same(torch.baddbmm, c, a, b, beta=beta, alpha=alpha)


@pytest.mark.parametrize("dtype", DTYPES)
def test_beta_zero_ignores_nan(dtype):
    a, b = operands(4, 6, 5, dtype)
    for shape in ((6,), (4, 6)):
        same(torch.addmm, torch.full(shape, float("nan"), dtype=dtype), a, b, beta=0)


def test_alpha_zero_is_torchs():
    a = torch.full((4, 5), float("nan"))
    report = same(torch.addmm, integers(6), a, integers(5, 6), alpha=0, count=0)
    assert report.reasons == {"alpha is 0, so torch does not read the operands": 1}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", range(4))
def test_out(dtype, step):
    a, b = operands(4, 6, 5, dtype)
    a3, b3 = operands(4, 6, 5, dtype, (2,))
    row = integers(6, dtype=dtype)
    calls = (
        (torch.mm, (a, b), (4, 6)),
        (torch.bmm, (a3, b3), (2, 4, 6)),
        (torch.addmm, (row, a, b), (4, 6)),
        (torch.baddbmm, (row, a3, b3), (2, 4, 6)),
    )
    for function, args, shape in calls:
        expected = by_torch(function, *args)
        out = strided(torch.full(shape, 9, dtype=dtype), step)
        version = out._version
        with tcgemm.use() as u:
            assert function(*args, out=out) is out
        assert out._version > version
        reference.assert_exact(out, expected)
        assert u.report().taken == 1


def test_an_out_that_torch_resizes_or_that_shares_memory():
    a, b = operands(6, 6, 6, F32)
    with tcgemm.use() as u, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.mm(a, b, out=torch.empty(0)).shape == (6, 6)
        assert torch.mm(a, b, out=torch.empty(2, 2)).shape == (6, 6)
        c = integers(6, 6)
        expected = c + a @ b
        reference.assert_exact(torch.addmm(c, a, b, out=c), expected)
        reference.assert_exact(c.clone().addmm_(a, b), c + a @ b)
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.mm(a, b, out=torch.empty(6, 1).expand(6, 6))
        with pytest.raises(RuntimeError, match="dtype"):
            torch.mm(a, b, out=torch.empty(6, 6, dtype=F64))
    reasons = " ".join(u.report().reasons)
    assert "out has another shape or dtype" in reasons and "shares memory with c" in reasons
    assert "writes into one of its addends" in reasons


@pytest.mark.parametrize("use_gelu", [False, True])
def test_addmm_activation(use_gelu):
    a, b, bias = torch.randn(4, 5), torch.randn(5, 6), torch.randn(6)
    expected = by_torch(torch._addmm_activation, bias, a, b, use_gelu=use_gelu)
    with tcgemm.use() as u:
        result = torch._addmm_activation(bias, a, b, use_gelu=use_gelu)
    assert torch.allclose(result, expected, atol=1e-5) and u.report().taken == 1


def test_int_mm():
    same(torch._int_mm, integers(33, 16, dtype=S8), integers(16, 24, dtype=S8))
    # torch has no right answer here: oneDNN without VNNI saturates sums of two products in 16 bits.
    a, b = integers(33, 16, dtype=S8, largest=127), integers(16, 24, dtype=S8, largest=127)
    out = torch.empty(33, 24, dtype=torch.int32)
    with tcgemm.use() as u:
        assert torch._int_mm(a, b, out=out) is out
    assert torch.equal(out.long(), a.long() @ b.long()) and u.report().taken == 1


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("out_dtype", [BF16, F32])
def test_scaled_mm(dtype, fast, out_dtype):
    a, b = integers(32, 16, dtype=dtype), integers(16, 48, dtype=E4M3).t().contiguous().t()
    scale_a, scale_b = torch.tensor(0.5), torch.tensor([4.0])
    options = {"out_dtype": out_dtype, "use_fast_accum": fast}
    same(torch._scaled_mm, a, b, scale_a, scale_b, **options)
    bias = integers(48, dtype=BF16 if out_dtype is BF16 else F16)
    with tcgemm.use() as u:
        with_bias = torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, **options)
        rows = torch._scaled_mm(a, b, torch.full((32, 1), 0.5), torch.full((1, 48), 4.0), **options)
    wide = 2 * (a.float() @ b.float())
    reference.assert_exact(with_bias, (wide + bias.float()).to(out_dtype))
    reference.assert_exact(rows, wide.to(out_dtype))
    assert u.report().taken == 2


def test_scaled_mm_that_is_left_to_torch():
    a, b = integers(32, 16, dtype=E4M3), integers(16, 48, dtype=E4M3).t().contiguous().t()
    one = torch.ones(())
    calls = ({}, {"out_dtype": BF16, "scale_result": one}, {"out_dtype": E4M3})
    for options in calls:
        expected = by_torch(torch._scaled_mm, a, b, one, one, **options)
        with tcgemm.use(dtypes=("e4m3",)) as u:
            result = torch._scaled_mm(a, b, one, one, **options)
        assert torch.equal(result.float(), expected.float()) and u.report().taken == 0
    with tcgemm.use() as u, pytest.raises((RuntimeError, ValueError)):
        torch._scaled_mm(a, b, torch.ones(32, 2), torch.ones(1, 48), out_dtype=BF16)
    assert u.report().taken == 0


@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.int64, torch.uint8, torch.int8, torch.complex64]
)
def test_dtypes_without_a_product(dtype):
    a, b = integers(4, 5).abs().to(dtype), integers(5, 6).abs().to(dtype)
    report = same(torch.mm, a, b, count=0)
    assert report.reasons == {f"tcgemm has no product of {dtype} in this function": 1}
    same(torch.addmm, torch.ones(6, dtype=dtype), a, b, beta=2, alpha=3, count=0)
    if dtype.is_complex:
        same(torch.mm, a, b.t().conj().t(), count=0)


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_empty(sizes):
    m, n, k = sizes
    a, b = torch.ones(m, k), torch.ones(k, n)
    same(torch.mm, a, b, count=0)
    same(torch.bmm, a.expand(2, m, k), b.expand(2, k, n), count=0)
    same(torch.addmm, torch.ones(n), a, b, count=0)
    assert by_torch(torch.bmm, torch.ones(0, 2, 3), torch.ones(0, 3, 4)).shape == (0, 2, 4)
    same(torch.bmm, torch.ones(0, 2, 3), torch.ones(0, 3, 4), count=0)


WRONG = (
    lambda: torch.mm(torch.ones(2, 3), torch.ones(4, 5)),
    lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 4, dtype=F64)),
    lambda: torch.mm(torch.ones(2, 3, 4), torch.ones(4, 5)),
    lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(3, 4, 5)),
    lambda: torch.bmm(torch.ones(1, 3, 4), torch.ones(3, 4, 5)),
    lambda: torch.addmm(torch.ones(7), torch.ones(2, 3), torch.ones(3, 4)),
    lambda: torch.addmm(torch.ones(4, dtype=F64), torch.ones(2, 3), torch.ones(3, 4)),
    lambda: torch.addmm(torch.ones(4), torch.ones(2, 3), torch.ones(3, 4), alpha=1j),
    lambda: torch.addmm(torch.ones(1, 2, 4), torch.ones(2, 3), torch.ones(3, 4)),
    lambda: torch.baddbmm(torch.ones(3), torch.ones(2, 3, 4), torch.ones(2, 4, 5)),
    lambda: torch._int_mm(torch.ones(3, 4), torch.ones(4, 5)),
    lambda: F.linear(torch.ones(3, 4), torch.ones(5, 6)),
    lambda: torch.mm(torch.ones(2, 3, device="meta"), torch.ones(2, 3, device="meta")),
)


@pytest.mark.parametrize("call", WRONG)
def test_errors_are_torchs(call):
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        call()
    with tcgemm.use() as u, pytest.raises(expected.type) as error:
        call()
    assert str(error.value) == str(expected.value)
    assert (u.report().taken, u.report().left) == (0, 0)


def test_views_that_torch_resolves():
    a = integers(4, 5)
    same(torch.mm, a, torch.view_as_complex(integers(5, 6, 2)).conj().imag)
    same(torch.mm, a, torch._efficientzerotensor(5, 6))
    same(torch.mm, a, integers(5, 1).expand(5, 6))
    same(torch.mm, a, integers(6, 5).as_strided((5, 6), (1, 2)))
    same(torch.mm, torch.nn.Parameter(a), a.t())


def test_float8_in_mm_is_torchs():
    a, b = integers(2, 3, dtype=E4M3), integers(3, 4, dtype=E4M3)
    expected = by_torch(torch.mm, a, b)  # of float8, where tcgemm.mm returns bfloat16
    with tcgemm.use() as u:
        result = torch.mm(a, b)
    assert result.dtype is E4M3 and torch.equal(result.float(), expected.float())
    assert (u.report().taken, u.report().left) == (0, 1)


def test_other_layouts_are_torchs():
    a, b = integers(4, 5), integers(5, 6)
    with tcgemm.use():
        assert torch.equal(torch.mm(a.to_sparse(), b), a @ b)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.equal(torch.mm(a.to_sparse_csr(), b), a @ b)
            nested = torch.nested.nested_tensor([a, a[:2]])
            assert torch.equal(F.linear(nested, b.t()).unbind()[1], a[:2] @ b)
            # torch passes no named tensor to a kernel in Python: an error, and never other names.
            # Newer ones of torch have no named tensors.
            if hasattr(a, "rename"):
                with pytest.raises(RuntimeError, match="Named tensors are currently unsupported"):
                    torch.mm(a.rename("rows", "k"), b.rename("k", "columns"))


def test_functions_that_torch_makes_of_products():
    x, w, bias = integers(2, 3, 8), integers(6, 8), integers(6)
    same(F.linear, x, w, bias)
    same(F.linear, x, w)
    same(F.linear, x[0, 0], w, bias)
    same(torch.matmul, x, w.t())
    same(torch.matmul, x, x.mT)
    same(torch.einsum, "bik,jk->bij", x, w)
    same(torch.einsum, "bik,bjk->bij", x, x)
    same(torch.linalg.multi_dot, [x[0], w.t(), w], count=2)
    same(torch.addbmm, integers(3, 3), x, x.mT, count=0)


@pytest.mark.parametrize("seed", range(40))
def test_random_calls(seed):
    """A random function, dtype, size, strides, addend, alpha, beta and out."""
    pick = random.Random(seed)
    for _ in range(25):
        dtype = pick.choice((*DTYPES, torch.int32, torch.complex64))
        m, n, k = (pick.choice((0, 1, 2, 3, 7, 8, 16, 33)) for _ in range(3))
        batch = pick.choice(((), (), (1,), (3,)))
        a, b = operands(m, n, k, dtype, batch, pick.randrange(16))
        function, args, options = (torch.bmm if batch else torch.mm), (a, b), {}
        if pick.random() < 0.6:
            function = torch.baddbmm if batch else torch.addmm
            c = integers(*pick.choice(list(addends(m, n, batch))), dtype=dtype)
            args = (c, a, b)
            options = {"beta": pick.choice((0, 1, 2, -1)), "alpha": pick.choice((0, 1, 2, -3))}
        shape = (*batch, m, n)
        try:
            expected = by_torch(function, *args, **options)
        except RuntimeError as error:
            with tcgemm.use(), pytest.raises(RuntimeError) as excinfo:
                function(*args, **options)
            assert str(excinfo.value) == str(error)
            continue
        with tcgemm.use() as u:
            result = function(*args, **options)
            out = strided(torch.zeros(shape, dtype=dtype), pick.randrange(4))
            function(*args, **options, out=out)
        reference.assert_exact(result, expected)
        reference.assert_exact(out, expected)
        supported = dtype in DTYPES and 0 not in (m, n, k) and options.get("alpha") != 0
        assert u.report().taken == (2 if supported else 0), u.report()


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_data_stays_within_the_bound(dtype):
    a, b = torch.randn(40, 300).to(dtype), torch.randn(300, 50).to(dtype)
    bias = torch.randn(50).to(dtype)
    with tcgemm.use():
        reference.assert_close(torch.mm(a, b), a, b)
        reference.assert_close(torch.addmm(bias, a, b), a, b, bias=bias)
