"""Every operator of csrc/ops/register/library.cpp has its kernels, a fake and an opcheck."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import tcgemm
from tcgemm.ops import epilogue

from support.source_tree import ROOT, tree


def schemas() -> list[str]:
    """The operators of csrc/ops/register/library.cpp in its order, without overloads."""
    text = (ROOT / "csrc/ops/register/library.cpp").read_text()
    return list(dict.fromkeys(re.findall(r'(?:define\(m, |m\.def\(+\s*)"(\w+)', text)))


SETTINGS = ("_batch_invariant", "_set_tuned")  # of the planner
TABLES = ("_known_device", "_device_rates", "_code", "_plan")  # tcgemm.info asks them
TABLES = ("_catalog", *SETTINGS, *TABLES)
COMPOSITE = ("check_layout", "explain", "build_info", *TABLES)
SCALED = ("scaled_mm", "scaled_mm_amax")  # what the public products call when scales are given
CONSTANT = ("_constant_linear", "_constant_linear24", "_constant_scaled_mm")  # of layers
WEIGHT = ("packed_mm", "packed_mm_amax")  # what the public products call with a PackedWeight
SUBBYTE = ("_int4_mm", "_int4_mm_amax", "_binary_mm")  # of the bytes of sub-byte tensors
BACKWARD = ("_sum_rows", "_activation_backward")
SPARSE = ("compress24", "decompress24", "gather24", "prune24", "tile24")


def test_every_operator_has_a_schema_here():
    registered = {
        name.split("::")[1]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("tcgemm::")
    }
    assert {name.split(".")[0] for name in registered} >= set(schemas())
    public = ["mm", "bmm", "matmul", "addmm", "baddbmm", "linear"]
    assert schemas() == [
        *public,
        "_gemm",
        "_linear24",
        *CONSTANT,
        *SCALED,
        *WEIGHT,
        *SUBBYTE,
        "prepare",
        "quantize",
        "_pack_weight",
        *BACKWARD,
        *SPARSE,
        *COMPOSITE,
    ]


@pytest.mark.parametrize("name", schemas())
def test_operator_has_a_kernel_and_a_fake(name):
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    key = "CompositeExplicitAutograd" if name in COMPOSITE else "CPU"
    overloads = getattr(torch.ops.tcgemm, name).overloads()
    for overload in overloads:
        qualified = f"tcgemm::{name}" + ("" if overload == "default" else f".{overload}")
        assert has_kernel(qualified, key), qualified
        if name not in COMPOSITE:
            entry = torch._library.simple_registry.singleton.find(qualified)
            assert entry.fake_impl.kernel is not None or has_kernel(qualified, "Meta"), qualified


@pytest.mark.parametrize("name", [name for name in schemas() if name not in COMPOSITE])
def test_operator_is_in_the_opcheck_test(name):
    text = "".join(text for text in tree(".py").values() if "opcheck(" in text)
    assert re.search(rf'"{name}"|tcgemm\.{name}\b', text)


@pytest.mark.parametrize("name", ["mm", "bmm", "matmul", "addmm", "baddbmm", "linear"])
def test_product_takes_and_documents_every_term(name):
    function = getattr(tcgemm, name)
    terms = {*epilogue.Scales._fields, *epilogue.ADDENDS[1:], *epilogue.Epilogue._fields}
    terms -= {"beta"} if "add" not in name else set()
    assert terms <= set(inspect.signature(function).parameters)
    assert not {term for term in terms if not re.search(rf"\b{term}\b", function.__doc__)}


@pytest.mark.parametrize("name", ["scaled_mm", "scaled_mm_amax", "explain", "check_layout"])
def test_operator_takes_every_tensor(name):
    schema = getattr(torch.ops.tcgemm, name).default._schema
    names = {argument.name for argument in schema.arguments}
    assert {*epilogue.ADDENDS, *epilogue.Scales._fields} <= names
