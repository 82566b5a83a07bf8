"""Which file may include which, and where asm, torch and macros may stand.

A rule is a function (path, text) -> complaints, so that it runs on a small bad sample as well as on
the tree. Paths are relative to the checkout.
"""

from __future__ import annotations

import re

import pytest

from support.source_tree import CPP, ROOT, cycle, tree, without_comments

# Folder of csrc -> the folders that it includes, beside itself. A folder has only names above it.
INCLUDES = {
    "core": (),
    "isa": ("core",),
    "catalog.h": ("core",),
    "ptx": ("core",),
    "tile": ("ptx", "catalog.h", "core"),
    "kernels": ("tile", "ptx", "catalog.h", "isa", "core"),
    "launch": ("kernels", "catalog.h", "core"),
    "plan": ("catalog.h", "core"),
    "cpu": ("core",),
    "ops": ("core",),
    "ops/check": ("ops", "plan", "core"),
    "ops/product": ("ops/check", "ops", "plan", "core"),
    "ops/passes": ("ops/product", "ops", "plan", "core"),
    "ops/describe": (
        "ops/product",
        "ops/check",
        "ops",
        "plan",
        "launch",
        "catalog.h",
        "isa",
        "core",
    ),
    "ops/register": ("ops/product", "ops", "plan", "launch", "cpu", "core"),
    "emulate": ("isa", "core"),
    "lab": ("ptx",),
}


def folder_of(path: str) -> str:
    """csrc/kernels/sm90/kernel.cuh -> kernels; csrc/catalog.h -> catalog.h."""
    first, *rest = path.removeprefix("csrc/").split("/")
    return f"{first}/{rest[0]}" if first == "ops" and len(rest) > 1 else first


def includes_are_allowed(path: str, text: str) -> list[str]:
    folder = folder_of(path)
    if folder not in INCLUDES:
        return [f"{path}: no folder of that name"]
    names = re.findall(r'#include "([^"]+)"', text)
    return [
        f"{path} includes {name}"
        for name in names
        if folder_of(name) not in (folder, *INCLUDES[folder])
    ]


def asm_in_ptx_only(path: str, text: str) -> list[str]:
    match = re.search(r"\basm\b\s*(volatile)?\s*\(", without_comments(text))
    return [f"{path} has asm"] if match and folder_of(path) != "ptx" else []


def torch_in_ops_only(path: str, text: str) -> list[str]:
    match = re.search(r'#include [<"](torch|ATen|c10|Python\.h)', text)
    return [f"{path} includes a torch header"] if match and not path.startswith("csrc/ops/") else []


def arch_macro_in_one_place(path: str, text: str) -> list[str]:
    is_read = "__CUDA_ARCH" in without_comments(text)
    return [f"{path} reads __CUDA_ARCH__"] if is_read and path != "csrc/ptx/device_arch.cuh" else []


def function_macros_die_in_ptx(path: str, text: str) -> list[str]:
    complaints = []
    for match in re.finditer(r"^\s*#\s*define\s+(\w+)\(", text, re.MULTILINE):
        name = match.group(1)
        if folder_of(path) != "ptx":
            complaints.append(f"{path}: function-like macro {name}")
        elif not re.search(rf"^\s*#\s*undef\s+{name}\b", text[match.end() :], re.MULTILINE):
            complaints.append(f"{path}: {name} is not undefined at the end")
    return complaints


CPP_RULES = (
    includes_are_allowed,
    asm_in_ptx_only,
    torch_in_ops_only,
    arch_macro_in_one_place,
    function_macros_die_in_ptx,
)


@pytest.mark.parametrize("rule", CPP_RULES, ids=lambda rule: rule.__name__)
def test_csrc_keeps(rule):
    assert not [c for path, text in tree(*CPP).items() for c in rule(path, text)]


BAD = (
    (includes_are_allowed, "csrc/tile/a.cuh", '#include "plan/p.h"'),
    (includes_are_allowed, "csrc/core/a.h", '#include "catalog.h"'),
    (includes_are_allowed, "csrc/cpu/a.h", '#include "plan/p.h"'),
    *(
        (includes_are_allowed, "csrc/plan/a.cpp", f'#include "{folder}/a.h"')
        for folder in ("launch", "kernels", "ptx")
    ),
    (includes_are_allowed, "csrc/ops/a.h", '#include "ops/check/check.h"'),
    (includes_are_allowed, "csrc/ops/check/a.h", '#include "ops/product/batch.h"'),
    (includes_are_allowed, "csrc/ops/passes/a.cpp", '#include "launch/launch.h"'),
    (includes_are_allowed, "csrc/ops/new/a.cpp", ""),
    (asm_in_ptx_only, "csrc/tile/a.cuh", 'asm volatile("nop;");'),
    (torch_in_ops_only, "csrc/plan/a.cpp", "#include <torch/headeronly/a.h>"),
    (arch_macro_in_one_place, "csrc/tile/a.cuh", "#if __CUDA_ARCH__ >= 900"),
    (function_macros_die_in_ptx, "csrc/tile/a.cuh", "#define F(x) x\n#undef F"),
    (function_macros_die_in_ptx, "csrc/ptx/a.cuh", "#define F(x) x"),
)


@pytest.mark.parametrize(("rule", "path", "bad"), BAD)
def test_rule_can_fail(rule, path, bad):
    assert rule(path, bad)


def test_folders_have_no_circle_and_include_what_the_table_says():
    read: dict[str, set[str]] = {folder: set() for folder in INCLUDES}
    for path, text in tree(*CPP).items():
        names = re.findall(r'#include "([^"]+)"', text)
        read[folder_of(path)].update(folder_of(name) for name in names)
    above: set[str] = set()
    for folder, includes in INCLUDES.items():
        assert set(includes) <= above, folder
        assert set(includes) == read[folder] - {folder}, folder
        above.add(folder)


def test_the_page_of_the_architecture_has_every_folder():
    page = (ROOT / "docs/dev/architecture.md").read_text()
    rows = re.findall(r"^\| `([\w./]+)` \| [^|\n]+ \|([^|\n]*)\|$", page, re.MULTILINE)
    named = {folder: sorted(re.findall(r"[\w./]+", includes)) for folder, includes in rows}
    assert named == {folder: sorted(includes) for folder, includes in INCLUDES.items()}
    entries = {path.name for path in (ROOT / "csrc").iterdir()}
    assert entries == {folder.split("/")[0] for folder in INCLUDES} | {"exports.map"}


def test_includes_have_no_circle_and_exist():
    files = tree(*CPP)
    graph = {
        path: [f"csrc/{name}" for name in re.findall(r'#include "([^"]+)"', text)]
        for path, text in files.items()
    }
    assert not [name for names in graph.values() for name in names if name not in files]
    assert not cycle(graph)
    assert cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]
