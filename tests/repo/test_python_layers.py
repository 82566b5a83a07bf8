"""The layers of the Python packages, the private functions of torch, and the public names.

A rule is a function of a module's name and text that returns complaints, so that it runs on a bad
sample as well as on the package.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import tcgemm
from tcgemm.ops.operators import PLAIN

from support.source_tree import ROOT, cycle, tree

PACKAGE = Path(tcgemm.__file__).resolve().parent
# The lowest first. A package imports from itself and from the layers below its own.
LAYERS = (
    (
        "_driver",
        "_library",
        "_plots",
        "_shipped",
        "_tables",
        "dtypes",
        "published",
        "typing",
        "version",
    ),
    ("ops",),
    ("info", "operands", "override"),
    ("emulate", "nn", "packed", "sparse_cutlass"),
    ("saved_names",),
    ("",),  # tcgemm/__init__.py
    ("integrations", "measure"),
    ("numerics",),
    ("cli", "lab"),
    ("__main__",),
)
MOST_LAYERS, MOST_PACKAGES = 10, 12
# A kind of operands -> the other kinds that it may import.
KINDS = {"quant": (), "packed": ("quant",), "sparse": (), "integers": ()}
OPTIONAL = ("matplotlib", "numpy", "pandas", "sklearn", "tqdm")


def modules() -> dict[str, str]:
    """Name of a module within the package, such as "ops.fake" -> its text; "" is the package."""
    texts = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        texts[name] = path.read_text()
    return texts


NAMES = set(modules())


def own_name(imported: str) -> str:
    """ "tcgemm.ops.fake" -> "ops.fake"; "tcgemm" -> ""."""
    return imported.removeprefix("tcgemm").removeprefix(".")


def targets(node: ast.AST) -> list[str]:
    """The modules of tcgemm that an import statement imports from."""
    if isinstance(node, ast.Import):
        return [own_name(n.name) for n in node.names if n.name.split(".")[0] == "tcgemm"]
    if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "tcgemm":
        return []
    home = own_name(node.module)
    within = [f"{home}.{alias.name}".removeprefix(".") for alias in node.names]
    return [name if name in NAMES else home for name in within]


def imports(text: str) -> list[str]:
    """The imports that run; those under TYPE_CHECKING name a type for editors."""
    tree = ast.parse(text)
    unused = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    nodes = (node for node in ast.walk(tree) if id(node) not in unused)
    return [name for node in nodes for name in targets(node)]


def layer(name: str) -> int:
    top = name.split(".")[0]
    return next((index for index, tops in enumerate(LAYERS) if top in tops), -1)


def imports_point_down(name: str, text: str) -> list[str]:
    if layer(name) < 0:
        return [f"{name} is in no layer"]
    package = name.split(".")[0]
    return [
        f"{name} imports {target or 'tcgemm'}"
        for target in imports(text)
        if target.split(".")[0] != package and layer(target) >= layer(name)
    ]


def only_the_commands_name_the_lab(name: str, text: str) -> list[str]:
    """Nothing imports lab, also not by a string. The table of commands in cli names its modules."""
    if name.split(".")[0] == "lab":
        return []
    complaints = []
    for statement in ast.parse(text).body:
        if name == "cli" and ast.unparse(statement).startswith("COMMANDS"):
            continue
        for node in ast.walk(statement):
            words = [target for target in targets(node) if target.split(".")[0] == "lab"]
            if isinstance(node, ast.Constant) and re.match(r"tcgemm\.lab\b\S*$", str(node.value)):
                words.append(node.value)
            complaints += [f"{name} names {word}" for word in words]
    return complaints


def kinds_of_operands_are_apart(name: str, text: str) -> list[str]:
    if not name.startswith("operands."):
        return []
    kind, complaints = name.split(".")[1], []
    for target in imports(text):
        other = target.removeprefix("operands.").split(".")[0]
        if other in KINDS and other not in (kind, *KINDS[kind]):
            complaints.append(f"{name} imports {target}")
    return complaints


def imports_stand_at_the_top(name: str, text: str) -> list[str]:
    """An import inside a function is for an optional package, and hides no circle."""
    complaints = []
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(function):
            names = []
            if isinstance(node, ast.Import):
                names = [module.name for module in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "."]
            complaints += [
                f"{name} imports {module} inside a function"
                for module in names
                if module.split(".")[0] not in OPTIONAL
            ]
    return complaints


def private_torch_in_one_module(name: str, text: str) -> list[str]:
    """Names of torch with a leading underscore, read from the syntax so that prose is free."""
    if name == "ops._torch_private" or name.split(".")[0] == "measure":
        return []
    complaints = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            if path.startswith("torch.ops."):  # operators, such as tcgemm::_linear24
                continue
            if re.match(r"(torch|forward_ad)\.([a-z]\w*\.)*_[a-zA-Z]", path):
                complaints.append(f"{name} reads {path}")
            if node.attr in ("_handle", "_opname", "_schema"):
                complaints.append(f"{name} reads .{node.attr}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            parts = [*node.module.split("."), *(alias.name for alias in node.names)]
            if any(part.startswith("_") for part in parts):
                complaints.append(f"{name} imports {ast.unparse(node)}")
    return complaints


def matplotlib_in_one_module(path: str, text: str) -> list[str]:
    """matplotlib is optional, and all pictures have the same colours and files by one module."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [module.name for module in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    is_there = "matplotlib" in [name.split(".")[0] for name in names]
    return [f"{path} imports matplotlib"] if is_there and path != "tcgemm/_plots.py" else []


RULES = (
    imports_point_down,
    only_the_commands_name_the_lab,
    kinds_of_operands_are_apart,
    imports_stand_at_the_top,
    private_torch_in_one_module,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps(rule):
    assert not [complaint for item in modules().items() for complaint in rule(*item)]


def test_every_file_keeps_matplotlib_in_one_module():
    files = [item for item in tree(".py").items() if "matplotlib" in item[1]]
    assert "tcgemm/_plots.py" in dict(files)
    assert not [line for item in files for line in matplotlib_in_one_module(*item)]


BAD = (
    (imports_point_down, "ops.a", "from tcgemm import nn"),
    (imports_point_down, "ops.a", "import tcgemm"),
    (imports_point_down, "ops.a", "if 1:\n    import tcgemm"),
    (imports_point_down, "override.a", "import tcgemm.operands.sparse.prune"),
    (kinds_of_operands_are_apart, "operands.quant.a", "import tcgemm.operands.sparse.prune"),
    (kinds_of_operands_are_apart, "operands.integers.a", "from tcgemm.operands import quant"),
    (imports_point_down, "measure.a", "from tcgemm.lab import store"),
    (imports_point_down, "cli.a", "from tcgemm.lab import store"),
    (imports_point_down, "nn.a", "from tcgemm.packed import PackedWeight"),
    (imports_point_down, "elsewhere.a", ""),
    (only_the_commands_name_the_lab, "__main__", "from tcgemm import lab"),
    (only_the_commands_name_the_lab, "cli.a", "COMMANDS = {'a': 'tcgemm.lab.a'}"),
    (only_the_commands_name_the_lab, "cli", "A = 'tcgemm.lab.a'"),
    (only_the_commands_name_the_lab, "measure.a", "import_module(f'tcgemm.lab.{name}')"),
    (imports_stand_at_the_top, "a", "def f():\n    import tcgemm"),
    (private_torch_in_one_module, "a", "x = torch._C._f()"),
    (private_torch_in_one_module, "a", "from torch.a import _b"),
    (private_torch_in_one_module, "a", "x = op._handle.call"),
    (matplotlib_in_one_module, "benchmarks/a.py", "import matplotlib.figure"),
    (matplotlib_in_one_module, "tcgemm/a.py", "def f():\n    from matplotlib import pyplot"),
)


@pytest.mark.parametrize(("rule", "name", "bad"), BAD)
def test_rule_can_fail(rule, name, bad):
    assert rule(name, bad)


GOOD = (
    (imports_point_down, "lab.a", "from tcgemm.measure import timing"),
    (imports_point_down, "operands.a", "import tcgemm.ops\nfrom tcgemm.operands import b"),
    (only_the_commands_name_the_lab, "cli", "COMMANDS = {'a': 'tcgemm.lab.a'}"),
    (kinds_of_operands_are_apart, "operands.packed.a", "from tcgemm.operands import quant"),
)


@pytest.mark.parametrize(("rule", "name", "good"), GOOD)
def test_rule_can_hold(rule, name, good):
    assert not rule(name, good)


def test_packages_and_layers_are_few():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert len(packages) <= MOST_PACKAGES
    assert len(LAYERS) <= MOST_LAYERS
    assert {name for names in LAYERS for name in names} == {name.split(".")[0] for name in NAMES}


def test_the_page_of_the_architecture_has_every_package():
    page = (ROOT / "docs/dev/architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `([\w.]+)` \|", page, re.MULTILINE)
    assert all((PACKAGE / name).exists() for _, name in rows)
    named = [(int(number), name.removesuffix(".py")) for number, name in rows]
    layers = [(i, name or "__init__") for i, names in enumerate(LAYERS, 1) for name in names]
    assert sorted(named) == sorted(layers)
    assert len(page.splitlines()) <= 110  # two screens


def test_imports_have_no_circle():
    graph = {name: imports(text) for name, text in modules().items()}
    assert sum(map(len, graph.values())) > 50
    assert not cycle(graph)
    assert cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]


PUBLIC = (
    *("BinaryTensor", "Int4Tensor", "PackedWeight", "Prepared", "SparseTensor24"),
    "__version__",
    *("batch_invariant", "binary_mm", "check_layout", "compare"),
    *(
        "compress24",
        "constant_weights",
        "dequantize",
        "explain",
        "grouped_mm",
        "info",
        "nn",
        "pack_weight",
        "packed",
        "prepare",
        "prune24",
    ),
    *("quantize", "quantized_linear", "refresh_weights", "swap_linear", "tune", "use"),
    *(op.name for op in PLAIN),
)


def test_public_names():
    assert tcgemm.__all__ == sorted(PUBLIC)
    packages = ("emulate", "measure", "numerics", "sparse_cutlass", "typing")
    names = {name for name in dir(tcgemm) if not re.fullmatch(r"__\w+__", name)}
    assert names == {*PUBLIC, *packages} - {"__version__"}
    assert "__version__" in dir(tcgemm)
    assert set(tcgemm.nn.__all__) == {
        *("Conv1D", "Float8Linear", "Linear", "MultiheadAttention", "QuantConv1D", "QuantLinear"),
        "PackedLinear",
        *("RefreshReport", "Refreshed", "SparseLinear24", "SwapReport"),
        *("constant_weights", "refresh_weights", "swap_linear"),
    }
    for name in (*PUBLIC, "sparse_cutlass", "typing"):
        assert getattr(tcgemm, name) is not None
    assert callable(sys.modules["tcgemm.sparse_cutlass"].to_cutlass)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_and_classes_are_called_by_their_public_name(name):
    value = getattr(tcgemm, name)
    if callable(value):
        assert (value.__module__, value.__qualname__) == ("tcgemm", name)
