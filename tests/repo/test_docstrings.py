"""Public docstrings: a plain sentence, an example that runs, then everything else."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest
import torch

import tcgemm

LIBRARIES = {"tcgemm.libtcgemm", "tcgemm.libtcgemm_lab"}  # they are no Python modules
MODULES = (
    *(
        "",
        "comparison",
        "emulate",
        "info",
        "integrations.transformers",
        "nn",
        "numerics",
        "probe",
        "override",
        "packed",
    ),
    *("sparse_cutlass", "testing", "typing"),
)


def public() -> dict[str, object]:
    """Public functions and classes by their path."""
    found: dict[str, object] = {}
    for short in MODULES:
        module = importlib.import_module(f"tcgemm.{short}".rstrip("."))
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
        ]
        for name in names:
            value = getattr(module, name)
            if inspect.isroutine(value) or inspect.isclass(value):
                found[f"{module.__name__}.{name}"] = value
    return found


PUBLIC = public()


def examples() -> dict[str, doctest.DocTest]:
    """Every docstring of the package that has an example."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    names = [found.name for found in pkgutil.walk_packages(tcgemm.__path__, "tcgemm.")]
    modules = [tcgemm, *map(importlib.import_module, set(names) - LIBRARIES)]
    found = [test for each in modules for test in finder.find(each)]
    found += [test for name, value in PUBLIC.items() for test in finder.find(value, name)]
    return {test.name: test for test in found if test.examples}


def test_every_example_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = examples()  # not before: it imports every module
    assert len(found) > 30
    assert {"tcgemm.mm", "tcgemm.nn.Linear", "tcgemm.SparseTensor24"} <= found.keys()
    assert {"tcgemm.use", "tcgemm.compare", "tcgemm.comparison.Comparison.plot"} <= found.keys()
    said: list[str] = []
    for test in found.values():
        torch.manual_seed(0)
        linears = (torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        model = torch.nn.Sequential(linears[0], torch.nn.ReLU(), linears[1])
        test.globs = {**test.globs, "torch": torch, "tcgemm": tcgemm, "model": model}
        doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)


def complaints(text: str) -> list[str]:
    """The faults of a public docstring."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    first = paragraphs[0]
    found = []
    if len(first) > 240 or not first.rstrip(":").endswith("."):
        found.append("the first paragraph is no short sentence")
    later = [part for part in paragraphs[2:] if part.lstrip().startswith("Example:")]
    if later:
        found.append("the example is not the second paragraph")
    section = ""
    for line in inspect.cleandoc(text).splitlines():
        if line[:1].strip():
            section = line.rstrip(":") if re.fullmatch(r"[A-Z]\w+( arguments)?:", line) else ""
            first_of_section = True
        elif re.match(r"    \S", line) and section:
            name, colon, _ = line.partition(":")
            if "rguments" in section and not colon:
                found.append(f"names of {section} take more than a line: {name.strip()}")
            if section == "Returns" and first_of_section and re.search(r":( |$)", line):
                found.append("mkdocstrings takes what stands before a colon for a type")
            first_of_section = False
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_begins_with_a_sentence_and_the_example(name):
    assert not complaints(PUBLIC[name].__doc__ or "")


def test_the_rule_can_fail():
    good = "Does this.\n\nExample:\n    >>> 1\n\nArguments:\n    x: a number."
    assert not complaints(good)
    assert complaints(good.replace("this.", "this"))
    assert complaints("Does this.\n\nArguments:\n    x: a number.\n\nExample:\n    >>> 1")
    assert complaints("Does " + 30 * "this and " + "that.")
    assert complaints("Does this.\n\nArguments:\n    a, b,\n        c: numbers.")
    assert complaints("Does this.\n\nReturns:\n    A dict: numbers.")
