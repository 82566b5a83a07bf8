"""Which file may include which, and where asm, torch and macros may stand.

A rule is a function (path, text) -> complaints, so that it runs on a small bad sample as well as on
the tree. Paths are relative to the checkout.
"""

from __future__ import annotations

import re

import pytest

from support.source_tree import CPP, cycle, tree, without_comments

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


BAD = (
    (includes_point_right, "csrc/tile/a.cuh", '#include "plan/p.h"'),
    (includes_point_right, "csrc/core/a.h", '#include "catalog.h"'),
    (includes_point_right, "csrc/cpu/a.h", '#include "plan/p.h"'),
    (asm_in_ptx_only, "csrc/tile/a.cuh", 'asm volatile("nop;");'),
    (torch_in_ops_only, "csrc/plan/a.cpp", "#include <torch/headeronly/a.h>"),
    (arch_macro_in_one_place, "csrc/tile/a.cuh", "#if __CUDA_ARCH__ >= 900"),
    (function_macros_die_in_ptx, "csrc/tile/a.cuh", "#define F(x) x\n#undef F"),
    (function_macros_die_in_ptx, "csrc/ptx/a.cuh", "#define F(x) x"),
)


@pytest.mark.parametrize(("rule", "path", "bad"), BAD)
def test_rule_can_fail(rule, path, bad):
    assert rule(path, bad)


def test_includes_have_no_circle_and_exist():
    files = tree(*CPP)
    graph = {
        path: [f"csrc/{name}" for name in re.findall(r'#include "([^"]+)"', text)]
        for path, text in files.items()
    }
    assert not [name for names in graph.values() for name in names if name not in files]
    assert not cycle(graph)
    assert cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]
