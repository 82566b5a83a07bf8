"""torch.library.opcheck of every operator: schema, fake, autograd registration, AOT dispatch."""

import pytest
import torch
from composed import CASES, Case
from torch.library import opcheck

import tcgemm  # noqa: F401  (registers the operators)

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
    if case.op == "addmm":
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


def test_general():
    a, b = torch.randn(2, 1, 3, 4), torch.randn(5, 4, 2)
    addends = (torch.randn(3, 1), torch.randn(2), torch.randn(2, 5, 3, 2))
    options = {"activation": "silu", "alpha": 0.5, "beta": 2.0}
    opcheck(OPS._gemm.default, (a, b, *addends), options)
    opcheck(OPS._gemm.default, (a, b))
    out = torch.empty(2, 5, 3, 2)
    opcheck(OPS._gemm.out, (a, b, *addends), {**options, "out": out})


@pytest.mark.parametrize("name", ["check_layout", "explain"])
def test_questions(name):
    """They return text, which no graph holds: the schema is what there is to check."""
    a, b = torch.randn(16, 32).half(), torch.randn(32, 16).half()
    op = getattr(OPS, name).default
    opcheck(op, (a, b, a.new_ones(16)), {"activation": "gelu"}, test_utils="test_schema")
    for tensors in ((a, b), (a.to("meta"), b.to("meta"))):
        assert "16 x 32" in op(*tensors, device="H200")


def test_every_operator_is_checked():
    names = {
        name.split("::")[1]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("tcgemm::")
    }
    tested = {case.op for case in CHECKED} | {"_gemm", "check_layout", "explain"}
    assert {name.split(".")[0] for name in names} == tested | {"build_info"}
