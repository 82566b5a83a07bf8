"""The rules that keep the house easy to read, held by tests, and tests that the rules can fail.

A rule is a function (path, text) -> complaints, so that it runs on a small bad sample as well as on
the tree. Paths are relative to the checkout.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tcgemm
from tcgemm import info

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 500
MAX_COLUMNS = 100
CPP = (".h", ".cuh", ".cpp", ".cu")

# Data flows left to right; a folder includes only folders to its right.
DIRECTION = ("ops", "plan", "launch", "kernels", "tile", "ptx", "catalog.h", "isa", "core")
SIDE_ROOMS = {"cpu": ("cpu", "core"), "python": ("python", "plan", "catalog.h", "isa", "core")}


def tree(*suffixes: str) -> dict[str, str]:
    """Path -> text of every source file of ours."""
    paths = [
        p
        for folder in ("csrc", "tcgemm", "tests", "benchmarks")
        for p in (ROOT / folder).rglob("*")
    ] + list(ROOT.glob("setup*.py"))
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in sorted(paths)
        if path.suffix in suffixes and "__pycache__" not in path.parts
    }


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def room(path: str) -> str:
    """csrc/kernels/sm90/kernel.cuh -> kernels; csrc/catalog.h -> catalog.h."""
    return path.removeprefix("csrc/").split("/")[0]


def right_of(source: str) -> tuple[str, ...]:
    """The rooms that a room may include: itself and what stands to its right."""
    if source in SIDE_ROOMS:
        return SIDE_ROOMS[source]
    side = ("cpu",) if source == "ops" else ()
    return DIRECTION[DIRECTION.index(source) :] + side


def includes_point_right(path: str, text: str) -> list[str]:
    if room(path) not in (*DIRECTION, *SIDE_ROOMS):
        return [f"{path}: no room of that name"]
    targets = [room(name) for name in re.findall(r'#include "([^"]+)"', text)]
    return [f"{path} includes {name}" for name in targets if name not in right_of(room(path))]


def asm_in_ptx_only(path: str, text: str) -> list[str]:
    found = re.search(r"\basm\b\s*(volatile)?\s*\(", without_comments(text))
    return [f"{path} has asm"] if found and room(path) != "ptx" else []


def torch_in_ops_only(path: str, text: str) -> list[str]:
    found = re.search(r'#include [<"](torch|ATen|c10|Python\.h)', text)
    return [f"{path} includes a torch header"] if found and room(path) != "ops" else []


def arch_macro_in_one_place(path: str, text: str) -> list[str]:
    found = "__CUDA_ARCH" in without_comments(text)
    return [f"{path} reads __CUDA_ARCH__"] if found and path != "csrc/ptx/device_arch.cuh" else []


def function_macros_die_in_ptx(path: str, text: str) -> list[str]:
    complaints = []
    for found in re.finditer(r"^\s*#\s*define\s+(\w+)\(", text, re.MULTILINE):
        name = found.group(1)
        if room(path) != "ptx":
            complaints.append(f"{path}: function-like macro {name}")
        elif not re.search(rf"^\s*#\s*undef\s+{name}\b", text[found.end() :], re.MULTILINE):
            complaints.append(f"{path}: {name} is not undefined at the end")
    return complaints


def file_is_short(path: str, text: str) -> list[str]:
    lines = text.count("\n")
    return [f"{path} has {lines} lines"] if lines >= MAX_LINES else []


def lines_are_short(path: str, text: str) -> list[str]:
    return [
        f"{path}:{number} has {len(line)} columns"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ]


def todo_is_a_sentence(path: str, text: str) -> list[str]:
    return [
        f"{path}: {line.strip()}"
        for line in text.splitlines()
        if re.search(r"\b(TODO|FIXME|XXX)\b(?!: (\S+ ){5,}\S+\.$)", line)
    ]


def no_commented_out_code(path: str, text: str) -> list[str]:
    """Statements behind a comment sign; prose does not end in `);` or begin with `if (`."""
    sign = "//" if path.endswith(CPP) else "#"
    statement = rf"^\s*{sign}\s*([\w.>:\[\]-]+(\(.*\)| [-+*/]?= .*);|(if|for|while) \(.*)$"
    if sign == "#":
        statement = r"^\s*# ?(import \w+|from \w+ import .*|[\w.]+ = \S+|[\w.]+\(.*\)|return .*\))$"
    return [f"{path}: {line.strip()}" for line in text.splitlines() if re.search(statement, line)]


def file_has_a_head(path: str, text: str) -> list[str]:
    first = text.lstrip().split("\n")[0]
    start = ("//", '"""', 'r"""', "#!")
    return [] if first.startswith(start) else [f"{path} does not say what it is in its first line"]


CPP_RULES = (
    includes_point_right,
    asm_in_ptx_only,
    torch_in_ops_only,
    arch_macro_in_one_place,
    function_macros_die_in_ptx,
)
RULES = (
    file_is_short,
    lines_are_short,
    todo_is_a_sentence,
    no_commented_out_code,
    file_has_a_head,
)


@pytest.mark.parametrize("rule", CPP_RULES, ids=lambda rule: rule.__name__)
def test_csrc_keeps(rule):
    assert not [c for path, text in tree(*CPP).items() for c in rule(path, text)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps(rule):
    files = {path: text for path, text in tree(*CPP, ".py").items() if text}
    if rule is todo_is_a_sentence or rule is no_commented_out_code:
        del files["tests/repo/test_house.py"]  # it holds the bad samples
    assert not [c for path, text in files.items() for c in rule(path, text)]


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
        (file_is_short, "a.py", "\n" * 500, "\n" * 499),
        (lines_are_short, "a.py", "x" * 101, "x" * 100),
        (todo_is_a_sentence, "a.py", "# TODO faster", "# nothing to do"),
        (no_commented_out_code, "a.cpp", "  // run(x, y);", "  // runs x, then y; both wait."),
        (no_commented_out_code, "a.cpp", "  // x = y + 1;", "  // x = y + 1 holds here"),
        (no_commented_out_code, "a.py", "    # import os", "    # imports nothing"),
        (file_has_a_head, "a.cpp", "#pragma once", "// What it is.\n#pragma once"),
    ],
)
def test_rule_can_fail(rule, path, bad, good):
    assert rule(path, bad)
    assert not rule(path, good)


def test_median_file_is_short():
    lengths = [text.count("\n") for text in tree(*CPP, ".py").values() if text]
    assert statistics.median(lengths) <= 200


def cycle(graph: dict[str, list[str]]) -> list[str]:
    """One circle of the graph, or nothing."""
    done: set[str] = set()

    def walk(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return trail[trail.index(node) :]
        if node in done:
            return []
        for target in graph.get(node, ()):
            if found := walk(target, [*trail, node]):
                return found
        done.add(node)
        return []

    return next((found for node in graph if (found := walk(node, []))), [])


def test_includes_have_no_circle_and_exist():
    files = tree(*CPP)
    graph = {
        path: [f"csrc/{name}" for name in re.findall(r'#include "([^"]+)"', text)]
        for path, text in files.items()
    }
    assert not [name for names in graph.values() for name in names if name not in files]
    assert not cycle(graph)
    assert cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]


# Operators.


def schemas() -> list[str]:
    """The operators of csrc/ops/library.cpp in its order, without overloads."""
    text = (ROOT / "csrc/ops/library.cpp").read_text()
    return list(dict.fromkeys(re.findall(r'(?:define\(m, |m\.def\(+)"(\w+)', text)))


COMPOSITE = ("check_layout", "explain", "build_info")
SCALED = ("scaled_mm", "scaled_mm_amax")  # what the public products call when scales are given
SPARSE = ("compress24", "decompress24", "gather24", "prune24", "tile24")
FORMAT = ("decompress24", "gather24", "tile24")  # what SparseTensor24 makes of values and metadata


def test_every_operator_has_a_schema_here():
    registered = {
        name.split("::")[1]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("tcgemm::")
    }
    assert {name.split(".")[0] for name in registered} >= set(schemas())
    public = ["mm", "bmm", "matmul", "addmm", "linear"]
    assert schemas() == [
        *public,
        "_gemm",
        "_linear24",
        *SCALED,
        "prepare",
        "quantize",
        *SPARSE,
        *COMPOSITE,
    ]


@pytest.mark.parametrize("name", schemas())
def test_operator_has_a_kernel_and_a_fake(name):
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    key = "CompositeExplicitAutograd" if name in COMPOSITE else "CPU"
    overloads = getattr(torch.ops.tcgemm, name).overloads()
    for overload in overloads:
        qualified = f"tcgemm::{name}" + ("" if overload == "default" else f".{overload}")
        assert has(qualified, key), qualified
        if name not in COMPOSITE:
            entry = torch._library.simple_registry.singleton.find(qualified)
            assert entry.fake_impl.kernel is not None or has(qualified, "Meta"), qualified


# The last is what `python -m tcgemm` reads.
PRIVATE = ("_gemm", "_linear24", *SCALED, *FORMAT, "build_info")


@pytest.mark.parametrize("name", [name for name in schemas() if name not in PRIVATE])
def test_operator_has_a_docstring(name):
    assert len(getattr(tcgemm, name).__doc__ or "") > 200


@pytest.mark.parametrize("name", [name for name in schemas() if name not in COMPOSITE])
def test_operator_is_in_the_opcheck_test(name):
    text = "".join(text for text in tree(".py").values() if "opcheck(" in text)
    assert re.search(rf'"{name}"|tcgemm\.{name}\b', text)


# README.


def test_support_table_is_the_catalog():
    readme = (ROOT / "README.md").read_text()
    table = re.search(r"<!-- support -->\n(.*?)\n<!-- /support -->", readme, re.DOTALL).group(1)
    if info._catalog is None:
        pytest.skip(info.NO_CATALOG)
    assert table.strip() == info.support_table().strip(), "run: python -m tcgemm --support-table"


def test_environment_variables_stand_in_the_readme():
    read = set()
    for path, text in {**tree(*CPP, ".py"), "Makefile": (ROOT / "Makefile").read_text()}.items():
        if not Path(path).name.startswith("test_"):
            read |= set(re.findall(r"(?:environ|getenv)\b[^\n]*?\b(TCGEMM_[A-Z_]+)", text))
    readme = (ROOT / "README.md").read_text()
    listed = set(re.findall(r"^\| `(TCGEMM_[A-Z_]+)", readme, re.MULTILINE))
    assert read
    assert read == listed


# Formatters.


def tool(name: str) -> str:
    """A formatter of this interpreter's environment: another version formats differently."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed beside {sys.executable}")
    return found


def run_tool(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"make format mends most of it:\n{done.stdout}{done.stderr}"


def test_clang_format():
    run_tool(tool("clang-format"), "--dry-run", "--Werror", *tree(*CPP))


def test_ruff_check():
    run_tool(tool("ruff"), "check", "--no-cache")


def test_ruff_format():
    run_tool(tool("ruff"), "format", "--check", "--no-cache")
