"""Targets of the Makefile, the workflows that call them, pinned tools, packages, and blame."""

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

from support import compute_sanitizer
from support.source_tree import ROOT, tree

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
INTERNAL = {"existing", "tools"}  # other targets call them
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").iterdir()
}


def run(*command: str, **options) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# The Makefile.


def test_help_has_a_line_for_every_target():
    lines = dict(re.findall(r"^  make (\S+) +(\S.*)$", run("make", "help"), re.MULTILINE))
    assert set(lines) == TARGETS - INTERNAL
    asked = "help lint typecheck test test-gpu sanitize sanitize-host bench docs wheel coverage"
    assert set(asked.split()) <= set(lines)
    assert max(map(len, run("make", "help").splitlines())) <= 100


def test_every_target_is_phony():
    names = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE).group(1)
    assert set(names.replace("\\", "").split()) == TARGETS


def test_lint_changes_no_file():
    recipe = run("make", "-n", "lint", "PYTHON=python3")
    assert "ruff check" in recipe and "ruff format --check" in recipe
    assert "--dry-run --Werror" in recipe
    assert not re.search(r"--fix| -i ", recipe)


@pytest.mark.parametrize(("debug", "build_type"), [("1", "debug"), ("0", ""), ("", "")])
def test_debug_reaches_the_build_alone(tmp_path, debug, build_type):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$TCGEMM_BUILD_TYPE:$*"\n')
    python.chmod(0o755)
    options = (f"PYTHON={python}", f"DEBUG={debug}")
    assert f"{build_type}:setup.py -q build_ext --inplace" in run("make", "build", *options)
    assert "\n:-m tcgemm" in "\n" + run("make", "-s", "info", *options)


# GitHub.


def commands(workflow: dict) -> list[str]:
    return [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_calls_targets_that_exist(name):
    called = [
        word
        for command in commands(WORKFLOWS[name])
        for words in re.findall(r"\bmake ([^\n;&|]+)", command)
        for word in words.split()
        if "=" not in word and not word.startswith(("-", "$", "}", "inputs", "matrix"))
    ]
    assert called
    assert set(called) <= TARGETS


def test_cpu_workflow_covers_versions_and_compilers():
    jobs = WORKFLOWS["cpu.yml"]["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert {"3.11", "3.13"} <= set(matrix["python"])
    oldest = Requirement(PROJECT["project"]["dependencies"][0]).specifier
    assert matrix["torch"][0].startswith(str(oldest).removeprefix(">="))
    assert len(matrix["torch"]) >= 2
    compilers = [*matrix["cxx"], *(entry["cxx"] for entry in matrix["include"])]
    assert {word.split()[0] for word in compilers} == {"g++", "clang++"}
    with_compiler = [step for step in jobs["test"]["steps"] if "CXX" in step.get("env", ())]
    assert [step["run"].split()[:2] for step in with_compiler] == [["make", "build"]]
    called = " ".join(commands(WORKFLOWS["cpu.yml"]))
    for target in ("lint", "typecheck", "docs", "test", "sanitize-host", "wheel"):
        assert re.search(rf"\bmake [^\n]*\b{target}\b", called), target


def test_gpu_workflow_is_started_by_hand_on_a_gpu():
    workflow = WORKFLOWS["gpu.yml"]
    assert list(workflow[True]) == ["workflow_dispatch"]  # YAML reads the key `on` as true
    for job in workflow["jobs"].values():
        assert {"self-hosted", "gpu"} <= set(job["runs-on"])


# Tools that have their version in two files.


def test_hooks_have_the_versions_of_pyproject():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [entry["repo"] for entry in hooks] == ["local"]
    used = {name for hook in hooks[0]["hooks"] for name in hook.get("additional_dependencies", ())}
    pinned = {name.split(";")[0] for name in EXTRAS["test"] if "==" in name}
    assert used == pinned


# Packages that the tests import.


def imported() -> dict[str, str]:
    """Module -> a file that imports it."""
    found = {}
    for path, text in tree(".py").items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            found |= {name.split(".")[0]: path for name in names}
    return found


def test_extras_bring_what_the_code_imports():
    """The Makefile installs every extra, so a fresh machine needs pip alone."""
    needed = [name for names in EXTRAS.values() for name in names]
    needed += PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]
    declared = {canonicalize_name(Requirement(name).name) for name in needed}
    packages = importlib.metadata.packages_distributions()
    ours = {"tcgemm", "benchmarks", "support", "setup", "setup_toolchain"}
    optional = {"pynvml"}  # beside the driver: telemetry without it has no clock rates
    missing = {
        module: path
        for module, path in imported().items()
        if module not in sys.stdlib_module_names | ours | optional
        and not declared & {canonicalize_name(name) for name in packages.get(module, [module])}
    }
    assert not missing


# git.


def test_commits_that_blame_ignores_exist():
    text = (ROOT / ".git-blame-ignore-revs").read_text()
    entries = re.findall(r"^# (.*)\n([0-9a-f]{40})$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(entries) == len(lines) > 5
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    if run("git", "rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone lacks old commits")
    for subject, commit in entries:
        assert run("git", "log", "-1", "--format=%s", commit).strip() == subject


# compute-sanitizer.


def test_compute_sanitizer_is_found_beside_nvcc_or_in_path(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.version.cuda", "13.0")

    def program(folder, name):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("#!/bin/sh\necho 'Cuda compilation tools, V13.0.88'\n")
        (folder / name).chmod(0o755)
        return str(folder / name)

    path = program(tmp_path / "path", "compute-sanitizer")
    program(tmp_path / "home/bin", "nvcc")
    environ = {"CUDA_HOME": str(tmp_path / "home"), "PATH": ""}
    with pytest.raises(SystemExit, match="cuda-toolkit"):
        compute_sanitizer.find([], environ)
    assert compute_sanitizer.find([], environ | {"PATH": str(tmp_path / "path")}) == path
    beside = program(tmp_path / "home/bin", "compute-sanitizer")
    assert compute_sanitizer.find([], environ) == beside
