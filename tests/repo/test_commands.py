"""Targets of the Makefile and who calls them, the packages that the code imports, CITATION.cff."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tcgemm

from support.source_tree import ROOT, tree

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
INTERNAL = {"existing", "tools"}  # other targets call them
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


def run(*command: str) -> str:
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_help_has_a_line_for_every_target():
    lines = dict(re.findall(r"^  make (\S+) +(\S.*)$", run("make", "help"), re.MULTILINE))
    assert set(lines) == TARGETS - INTERNAL


@pytest.mark.parametrize(("debug", "build_type"), [("1", "debug"), ("0", ""), ("", "")])
def test_debug_reaches_the_build_alone(tmp_path, debug, build_type):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$TCGEMM_BUILD_TYPE:$*"\n')
    python.chmod(0o755)
    options = (f"PYTHON={python}", f"DEBUG={debug}")
    assert f"{build_type}:setup.py -q build_ext --inplace" in run("make", "build", *options)
    assert "\n:-m tcgemm" in "\n" + run("make", "-s", "info", *options)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_calls_targets_that_exist(path):
    steps = [
        step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]
    ]
    targets = {
        word
        for step in steps
        for words in re.findall(r"\bmake ([^\n;&|]+)", step.get("run", ""))
        for word in words.split()
        if "=" not in word and not word.startswith(("-", "$", "}", "inputs", "matrix"))
    }
    assert targets and targets <= TARGETS


def test_pages_name_targets_that_exist():
    """As `make x`, or at the start of a line of code."""
    pattern = re.compile(r"(?:`|^ {4}|^ {4}.* )make ([a-z][\w-]*)", re.MULTILINE)
    named = {name for page in PAGES for name in pattern.findall(page.read_text())}
    assert {"build", "demo", "test"} <= named <= TARGETS


def imported() -> dict[str, str]:
    """Module -> a file that imports it."""
    modules = {}
    for path, text in tree(".py").items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            modules |= {name.split(".")[0]: path for name in names}
    return modules


def test_extras_bring_what_the_code_imports():
    """The Makefile installs every extra, so a fresh machine needs pip alone."""
    requirements = [name for names in EXTRAS.values() for name in names]
    requirements += PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]
    declared = {canonicalize_name(Requirement(name).name) for name in requirements}
    declared.add("triton")  # which torch brings
    packages = importlib.metadata.packages_distributions()
    own_modules = {"tcgemm", "benchmarks", "support", "setup", "setup_toolchain"}
    missing = {
        module: path
        for module, path in imported().items()
        if module not in sys.stdlib_module_names | own_modules
        and not declared & {canonicalize_name(name) for name in packages.get(module, [module])}
    }
    assert not missing


def test_the_citation_agrees_with_the_package():
    cited, project = yaml.safe_load((ROOT / "CITATION.cff").read_text()), PROJECT["project"]
    assert (cited["cff-version"], cited["version"]) == ("1.2.0", tcgemm.__version__)
    for name, key in (("title", "name"), ("authors", "authors"), ("license", "license")):
        assert cited[name] == project[key]
