"""Every operator of csrc/ops/operators.h has its kernels, a fake and an opcheck."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import tcgemm
from tcgemm.ops import epilogue, operators

from support.source_tree import ROOT, tree
from support.torch_reference import CASES


def has(operator: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"tcgemm::{operator}", key)


# Of csrc/ops/operators.h, with overloads: "mm", "mm.out".
OPERATORS = re.findall(
    r'^    \w+_row\(\s*"([\w.]+)"', (ROOT / "csrc/ops/operators.h").read_text(), re.MULTILINE
)
QUESTIONS = ("check_layout", "explain")  # they compute nothing, but a GPU answers about its tensors
COMPUTE = [name for name in OPERATORS if has(name, "CPU") and name not in QUESTIONS]


def test_the_table_is_read():
    names = torch._C._dispatch_get_all_op_names()
    registered = {name.split("::")[1].split(".")[0] for name in names if name[:8] == "tcgemm::"}
    assert {name.split(".")[0] for name in OPERATORS} <= registered
    assert len(OPERATORS) > len(COMPUTE) > 20


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_has_a_kernel_and_a_fake(name):
    packet, *overloads = name.split(".")
    for overload in overloads or getattr(torch.ops.tcgemm, packet).overloads():
        qualified = packet if overload == "default" else f"{packet}.{overload}"
        assert has(qualified, "CompositeExplicitAutograd"), qualified
        assert has(qualified, "CPU") == (name in (*COMPUTE, *QUESTIONS)), qualified
        if name in COMPUTE:
            entry = torch._library.simple_registry.singleton.find(f"tcgemm::{qualified}")
            assert entry.fake_impl.kernel is not None or has(qualified, "Meta"), qualified


@pytest.mark.parametrize("name", [name for name in COMPUTE if "." not in name])
def test_operator_is_in_the_opcheck_test(name):
    text = "".join(text for text in tree(".py").values() if "opcheck(" in text)
    assert name in {case.op for case in CASES} or re.search(rf'"{name}"|tcgemm\.{name}\b', text)


@pytest.mark.parametrize("name", [op.name for op in operators.PLAIN])
def test_product_takes_and_documents_every_term(name):
    function = getattr(tcgemm, name)
    terms = {*epilogue.Scales._fields, *epilogue.ADDENDS[1:], *epilogue.Epilogue._fields}
    terms -= {"constant_b", "one_slice"} | ({"beta"} if "add" not in name else set())
    assert terms <= set(inspect.signature(function).parameters)
    assert not {term for term in terms if not re.search(rf"\b{term}\b", function.__doc__)}


@pytest.mark.parametrize("name", ["scaled_mm", "scaled_mm_amax", "explain", "check_layout"])
def test_operator_takes_every_tensor(name):
    schema = getattr(torch.ops.tcgemm, name).default._schema
    names = {argument.name for argument in schema.arguments}
    assert {*epilogue.ADDENDS, *epilogue.Scales._fields} <= names
