"""torch.library.opcheck of every operator: schema, fake, autograd registration, AOT dispatch."""

import pytest
import torch
from torch.library import opcheck

from tcgemm.ops import query
from tcgemm.ops.operators import ADDS_C

from support.torch_reference import CASES, Case

OPS = torch.ops.tcgemm
FULL = Case(
    "addmm", (3, 4), (4, 5), c=(3, 1), bias=(5,), residual=(3, 5), activation="gelu", beta=0.5
)
CHECKED = [*(case for case in CASES if case.op != "addmm"), FULL, CASES[15]]


def arguments(case, dtype, requires_grad=False):
    """Positional and keyword arguments of the operator that the case calls."""
    tensors = case.tensors(dtype, requires_grad=requires_grad)
    order = ("a", "b", "bias", "residual")
    options = {"activation": case.activation, "alpha": case.alpha}
    if case.op in ADDS_C:
        order, options = ("c", *order), options | {"beta": case.beta}
    return tuple(tensors.get(name) for name in order), options


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_functional(case, dtype):
    opcheck(getattr(OPS, case.op).default, *arguments(case, dtype, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("case", [CASES[3], CASES[9], FULL], ids=str)
def test_other_dtypes_without_gradient(case, dtype):
    opcheck(getattr(OPS, case.op).default, *arguments(case, dtype))


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_out(case):
    positional, options = arguments(case, torch.bfloat16)
    packet = getattr(OPS, case.op)
    out = torch.empty_like(packet(*positional, **options))
    opcheck(packet.out, positional, {**options, "out": out})


@pytest.mark.parametrize("out_dtype", [torch.float16, torch.float32], ids=str)
def test_out_dtype_and_views(out_dtype):
    a = torch.randn(6, 9, dtype=torch.half)[::2, 1:5]
    b = torch.randn(5, 4, dtype=torch.half).t()
    options = {"out_dtype": out_dtype, "acc_dtype": torch.float16}
    opcheck(OPS.mm.default, (a, b), options)
    out = torch.empty(5, 3, dtype=out_dtype).t()
    opcheck(OPS.mm.out, (a, b), {**options, "out": out})


def test_linear_with_a_constant_weight():
    x, w, bias = torch.randn(6, 9), torch.randn(4, 9), torch.randn(4)
    options = {"activation": "relu", "constant_b": True}
    opcheck(OPS.linear.default, (x, w, bias), options)
    assert torch.equal(OPS.linear(x, w, bias, **options), OPS.linear(x, w, bias).relu())


def test_general():
    a, b = torch.randn(2, 1, 3, 4), torch.randn(5, 4, 2)
    addends = (torch.randn(3, 1), torch.randn(2), torch.randn(2, 5, 3, 2))
    options = {"activation": "silu", "alpha": 0.5, "beta": 2.0}
    opcheck(OPS._gemm.default, (a, b, *addends), options)
    opcheck(OPS._gemm.default, (a, b))
    out = torch.empty(2, 5, 3, 2)
    opcheck(OPS._gemm.out, (a, b, *addends), {**options, "out": out})


EIGHT = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)


def opcheck_eight(op, args, kwargs=None):
    """test_schema compares tensors by an arithmetic that torch has not for float8."""
    names = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    tensors = (*args, (kwargs or {}).get("out"), (kwargs or {}).get("out_dtype"))
    float8 = any(getattr(tensor, "dtype", tensor) in EIGHT[:2] for tensor in tensors)
    opcheck(op, args, kwargs, test_utils=names if float8 else ("test_schema", *names))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, *EIGHT], ids=str)
def test_plain_operators_of_every_dtype(dtype):
    a, b = (torch.randn(size).mul(9).to(dtype) for size in ((3, 4), (4, 5)))
    word = "promoted" if dtype in EIGHT[:2] else "high"
    opcheck_eight(OPS.mm.default, (a, b), {"precision": word})
    opcheck_eight(OPS.matmul.default, (a[0], b))


def scaled(dtype, **options):
    """Positional and keyword arguments of scaled_mm, with every tensor that the dtype takes."""
    floating = dtype not in EIGHT
    a, b = (torch.randn(size).mul(9).to(dtype) for size in ((2, 3, 4), (4, 5)))
    if floating:
        a.requires_grad_(), b.requires_grad_()
    addends = [torch.randn(size, requires_grad=True) for size in ((5,), (3, 1), (2, 3, 5))]
    scales = (torch.rand(2, 3, 1), torch.rand(1, 5))
    zeros = (torch.ones(3, 1, dtype=torch.int32), torch.tensor(2, dtype=torch.int32))
    zeros = zeros if dtype is torch.int8 else (None, None)
    options = {
        "activation": "gelu",
        "alpha": 0.5,
        "beta": 2.0,
        "out_dtype": torch.float32,
    } | options
    return (a, b, *scales, *addends, *zeros, torch.tensor(0.5)), options


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, *EIGHT], ids=str)
def test_scaled_with_a_constant_weight(dtype):
    tensors, options = scaled(dtype)
    tensors = [tensor if tensor is None else tensor.detach() for tensor in tensors]
    expected = OPS.scaled_mm(*tensors, **options)
    options["constant_b"] = True
    opcheck_eight(OPS.scaled_mm.default, tensors, options)
    assert torch.equal(OPS.scaled_mm(*tensors, **options), expected)


@pytest.mark.parametrize("name", ["scaled_mm", "scaled_mm_amax"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, *EIGHT], ids=str)
def test_scaled(name, dtype):
    op = getattr(OPS, name).default
    opcheck_eight(op, *scaled(dtype))
    opcheck_eight(op, *scaled(dtype, out_dtype=torch.int8 if dtype is torch.int8 else EIGHT[0]))
    opcheck_eight(op, scaled(dtype)[0][:2], {"out_dtype": torch.bfloat16})


def test_prepared():
    """On the CPU the terms are empty; gpu/test_prepared.py checks the terms of a GPU."""
    w = torch.randn(5, 4, requires_grad=True)
    opcheck(OPS.prepare.default, (w,))
    opcheck(OPS.prepare.default, (w.detach().t(),))
    tensors, options = scaled(torch.float32)
    tensors = (tensors[0], w.t(), *tensors[2:], OPS.prepare(w.detach()))
    opcheck(OPS.scaled_mm.default, tensors, options)
    opcheck(OPS.scaled_mm_amax.default, tensors, options)
    tensors = tuple(tensor if tensor is None else tensor.detach() for tensor in tensors)
    opcheck(OPS.scaled_mm.out, tensors, {**options, "out": torch.empty(2, 3, 5)})


@pytest.mark.parametrize("dtype", [torch.float16, *EIGHT], ids=str)
def test_scaled_out(dtype):
    tensors, options = scaled(dtype)
    tensors = tuple(tensor if tensor is None else tensor.detach() for tensor in tensors)
    out = torch.empty(2, 5, 3).mT
    opcheck_eight(OPS.scaled_mm.out, tensors, {**options, "out": out})


@pytest.mark.parametrize("name", ["check_layout", "explain"])
def test_questions(name):
    """Python decodes the answer, which no graph does: the schema is what there is to check."""
    a, b = torch.randn(16, 32).half(), torch.randn(32, 16).half()
    op = getattr(OPS, name).default
    opcheck(op, (a, b, a.new_ones(16)), {"activation": "gelu"}, test_utils="test_schema")
    for tensors in ((a, b), (a.to("meta"), b.to("meta"))):
        assert "16 x 32" in query.ask(name, *tensors, device="H200")["text"]


def test_every_operator_is_checked():
    names = {
        name.split("::")[1]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("tcgemm::")
    }
    tested = {case.op for case in CHECKED} | {"_gemm", "scaled_mm", "scaled_mm_amax", "prepare"}
    others = {"quantize", "quantized_linear", "check_layout", "explain", "build_info"}
    others |= {"_sum_rows", "_activation_backward", "_product_backward", "_float8_linear"}
    others |= {"_catalog", "_known_device", "_device_rates", "_code"}
    others |= {"_batch_invariant", "_captured", "_set_tuned"}
    others |= {"_int4_mm", "_int4_mm_amax", "_binary_mm"}  # tests/operands/integers
    others |= {"grouped_mm"}  # tests/grouped
    # In tests of their own; to_dense24 and mask24 are of SparseTensor24, which opcheck cannot copy.
    sparse = {"compress24", "decompress24", "gather24", "prune24", "tile24", "to_dense24", "mask24"}
    sparse |= {"_linear24"}
    packed = {"packed_mm", "packed_mm_amax", "_pack_weight"}  # in tests/operands/packed
    assert {name.split(".")[0] for name in names} == tested | others | sparse | packed
