"""The tables of dtypes agree: C++, Python, documentation, errors and the tests' own.

docs/dev/add-a-dtype.md says which of these tests fails if a step is forgotten.
"""

import re
import typing

import pytest
import torch

import tcgemm
from tcgemm import dtypes
from tcgemm.measure import errors
from tcgemm.ops import arguments
from tcgemm.typing import DTypeName

from support import cases, reference
from support.dtype_matrix import gemm_types
from support.source_tree import ROOT

HEADER = (ROOT / "csrc/core/dtype.h").read_text()
ROWS = pytest.mark.parametrize("row", dtypes.TABLE, ids=lambda row: row.name)
RESULTS = tuple(dtypes.NAMES)  # every dtype that a result or an operand can have


def enumerators() -> list[str]:
    """The names of DType in csrc/core/dtype.h, in order."""
    text = re.search(r"enum class DType : \S+ \{([^}]*)\}", HEADER).group(1)
    return [name.strip() for name in text.split(",")]


def of_tensors() -> list[str]:
    """The names of those that tensors and kernels have."""
    return enumerators()[: int(re.search(r"kTensorDTypes = (\d+)", HEADER).group(1))]


def spoken(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def test_the_enumerators_are_counted_and_named():
    names = enumerators()
    assert int(re.search(r"kDTypes = (\d+)", HEADER).group(1)) == len(names)
    assert re.findall(r'"(\w+)"', HEADER) == names
    switch = re.search(
        r"constexpr int addressable_bits\(DType type\) \{(.*?)\n\}", HEADER, re.DOTALL
    ).group(1)
    assert sorted(re.findall(r"DType::(\w+)", switch)) == sorted(names)


def test_torchs_numbers_are_in_the_order_of_the_enumerators():
    text = (ROOT / "csrc/ops/tensor.cpp").read_text()
    entries = re.search(r"supported\[kTensorDTypes\] = \{(.*?)\};", text, re.DOTALL).group(1)
    names = {str(dtype): name for dtype, name in dtypes.NAMES.items()} | {"tf32": "tf32"}
    order = [names[text] for text in re.findall(r'"([\w.]+)"', entries)]
    assert order == of_tensors()
    numbers = [spoken(dtype) for dtype in dtypes.NAMES]
    assert sorted(re.findall(r"aoti_torch_dtype_(\w+)\(\)", entries)) == sorted(numbers)


def test_python_and_the_tests_know_every_enumerator():
    assert {*dtypes.NAMES.values(), "tf32"} == set(of_tensors())
    assert dtypes.NAMES == cases.NAMES
    assert set(typing.get_args(DTypeName)) == {row.name for row in dtypes.TABLE}
    for device in dtypes.DEVICES:
        covered = {types.a for types in gemm_types(device)}
        assert covered == set(dtypes.supported(device))


@ROWS
def test_the_operators_take_what_the_table_says(row):
    """A product of ones, so that a dtype that is read as another one gives another number."""
    a, b = (torch.ones(shape).to(row.torch) for shape in ((3, 5), (5, 2)))
    assert dtypes.result(row.torch) in row.outputs
    assert tcgemm.mm(a, b).dtype is dtypes.result(row.torch)
    for dtype in RESULTS:
        if dtype in row.outputs:
            assert torch.equal(tcgemm.mm(a, b, out_dtype=dtype).double(), torch.full((3, 2), 5.0))
        else:
            with pytest.raises(RuntimeError, match=f"out_dtype is {re.escape(str(dtype))}"):
                tcgemm.mm(a, b, out_dtype=dtype)
        if dtype in row.accumulators:
            tcgemm.mm(a, b, acc_dtype=dtype)
        else:
            with pytest.raises(RuntimeError, match=f"acc_dtype is {re.escape(str(dtype))}"):
                tcgemm.mm(a, b, acc_dtype=dtype)


@ROWS
def test_fakes_have_the_dtype_of_the_result(row):
    a, b = (torch.ones(shape).to(row.torch).to("meta") for shape in ((3, 5), (5, 2)))
    for dtype in (None, *row.outputs):
        assert tcgemm.mm(a, b, out_dtype=dtype).dtype is (dtype or dtypes.result(row.torch))


@ROWS
def test_documentation_and_errors_name_the_dtype(row):
    assert re.search(rf"\b{spoken(row.torch)}\b", tcgemm.mm.__doc__)
    wrong = torch.ones(2, 2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=rf"{re.escape(str(row.torch))}\b"):
        tcgemm.mm(wrong, wrong)
    assert set(row.outputs) <= set(arguments._RESULTS)


@ROWS
def test_bounds_of_errors_know_the_results(row):
    for dtype in row.outputs:
        assert dtype in reference.HALF_SMALLEST or dtype in (torch.float64, torch.int32)
        assert dtype in errors.UNIT_ROUNDOFF or not dtype.is_floating_point


@pytest.mark.parametrize("dtype", dtypes.QUANTIZED, ids=spoken)
def test_quantize_takes_what_the_table_says(dtype):
    values, scale = tcgemm.quantize(torch.tensor([[1.0, -2.0]]), dtype, "row")
    back = tcgemm.dequantize(values, scale, torch.float32)
    assert torch.allclose(back, torch.tensor([[1.0, -2.0]]), rtol=0.02)
    assert spoken(dtype) in tcgemm.quantize.__doc__


def test_what_quantize_refuses_is_not_in_the_table():
    for dtype in set(RESULTS) - set(dtypes.QUANTIZED):
        with pytest.raises(RuntimeError, match=f"dtype is {re.escape(str(dtype))}"):
            tcgemm.quantize(torch.ones(1, 2), dtype)
