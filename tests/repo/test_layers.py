"""Which file may include or import which, and where asm, torch and macros may stand.

A rule is a function (path, text) -> complaints, so that it runs on a small bad sample as well as on
the tree. Paths are relative to the checkout.
"""

from __future__ import annotations

import ast
import re

import pytest

from support.source_tree import CPP, ROOT, cycle, tree, without_comments

# Data flows left to right; a folder includes only folders to its right.
DIRECTION = ("ops", "plan", "launch", "kernels", "tile", "ptx", "catalog.h", "isa", "core")
SIDE_FOLDERS = {
    "cpu": ("cpu", "core"),
    "emulate": ("emulate", "isa", "core"),
    "ladder": ("ladder", "ptx", "core"),
}


def folder_of(path: str) -> str:
    """csrc/kernels/sm90/kernel.cuh -> kernels; csrc/catalog.h -> catalog.h."""
    return path.removeprefix("csrc/").split("/")[0]


def right_of(source: str) -> tuple[str, ...]:
    """The folders that a folder may include: itself and those to its right."""
    if source in SIDE_FOLDERS:
        return SIDE_FOLDERS[source]
    side = ("cpu",) if source == "ops" else ()
    return DIRECTION[DIRECTION.index(source) :] + side


def includes_point_right(path: str, text: str) -> list[str]:
    if folder_of(path) not in (*DIRECTION, *SIDE_FOLDERS):
        return [f"{path}: no folder of that name"]
    targets = [folder_of(name) for name in re.findall(r'#include "([^"]+)"', text)]
    return [f"{path} includes {name}" for name in targets if name not in right_of(folder_of(path))]


def asm_in_ptx_only(path: str, text: str) -> list[str]:
    found = re.search(r"\basm\b\s*(volatile)?\s*\(", without_comments(text))
    return [f"{path} has asm"] if found and folder_of(path) != "ptx" else []


def torch_in_ops_only(path: str, text: str) -> list[str]:
    found = re.search(r'#include [<"](torch|ATen|c10|Python\.h)', text)
    return [f"{path} includes a torch header"] if found and folder_of(path) != "ops" else []


def arch_macro_in_one_place(path: str, text: str) -> list[str]:
    found = "__CUDA_ARCH" in without_comments(text)
    return [f"{path} reads __CUDA_ARCH__"] if found and path != "csrc/ptx/device_arch.cuh" else []


def function_macros_die_in_ptx(path: str, text: str) -> list[str]:
    complaints = []
    for found in re.finditer(r"^\s*#\s*define\s+(\w+)\(", text, re.MULTILINE):
        name = found.group(1)
        if folder_of(path) != "ptx":
            complaints.append(f"{path}: function-like macro {name}")
        elif not re.search(rf"^\s*#\s*undef\s+{name}\b", text[found.end() :], re.MULTILINE):
            complaints.append(f"{path}: {name} is not undefined at the end")
    return complaints


def no_test_imports_a_test(path: str, text: str) -> list[str]:
    """Code that two test files share is in tests/support."""
    modules = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [node.module or "", *(f"{node.module}.{name.name}" for name in node.names)]
    last = [name.split(".")[-1] for name in modules]
    return [f"{path} imports {name}" for name in last if name.startswith(("test_", "conftest"))]


CPP_RULES = (
    includes_point_right,
    asm_in_ptx_only,
    torch_in_ops_only,
    arch_macro_in_one_place,
    function_macros_die_in_ptx,
)


@pytest.mark.parametrize("rule", CPP_RULES, ids=lambda rule: rule.__name__)
def test_csrc_keeps(rule):
    assert not [c for path, text in tree(*CPP).items() for c in rule(path, text)]


def test_no_test_imports_a_test():
    files = {p: text for p, text in tree(".py").items() if p.startswith("tests/")}
    assert len(files) > 80
    assert not [c for path, text in files.items() for c in no_test_imports_a_test(path, text)]


@pytest.mark.parametrize(
    ("rule", "path", "bad", "good"),
    [
        (includes_point_right, "csrc/tile/a.cuh", '#include "plan/p.h"', '#include "ptx/tma.cuh"'),
        (includes_point_right, "csrc/core/a.h", '#include "catalog.h"', '#include "core/b.h"'),
        (includes_point_right, "csrc/cpu/a.h", '#include "plan/p.h"', '#include "core/b.h"'),
        (asm_in_ptx_only, "csrc/tile/a.cuh", 'asm volatile("nop;");', "// no asm (here)"),
        (torch_in_ops_only, "csrc/plan/a.cpp", "#include <torch/headeronly/a.h>", "int torch;"),
        (
            arch_macro_in_one_place,
            "csrc/tile/a.cuh",
            "#if __CUDA_ARCH__ >= 900",
            "// __CUDA_ARCH__",
        ),
        (function_macros_die_in_ptx, "csrc/tile/a.cuh", "#define F(x) x\n#undef F", "#define F 1"),
        (
            function_macros_die_in_ptx,
            "csrc/ptx/a.cuh",
            "#define F(x) x",
            "#define F(x) x\n#undef F",
        ),
        (
            no_test_imports_a_test,
            "tests/ops/test_a.py",
            "from tests.ops.test_b import one",
            "from support.cases import F16",
        ),
        (no_test_imports_a_test, "tests/test_a.py", "import test_b", "import support"),
        (no_test_imports_a_test, "tests/test_a.py", "from conftest import a", "import torch"),
    ],
)
def test_rule_can_fail(rule, path, bad, good):
    assert rule(path, bad)
    assert not rule(path, good)


def test_includes_have_no_circle_and_exist():
    files = tree(*CPP)
    graph = {
        path: [f"csrc/{name}" for name in re.findall(r'#include "([^"]+)"', text)]
        for path, text in files.items()
    }
    assert not [name for names in graph.values() for name in names if name not in files]
    assert not cycle(graph)
    assert cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]


def test_the_architecture_page_has_this_order():
    page = (ROOT / "docs/dev/architecture.md").read_text()
    assert f"    {' -> '.join(DIRECTION)}\n" in page
    assert all(re.search(rf"^    {folder} ", page, re.MULTILINE) for folder in SIDE_FOLDERS)
