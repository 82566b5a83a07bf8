"""The examples of docstrings run as they stand."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import torch

import tcgemm

LIBRARIES = {"tcgemm.libtcgemm", "tcgemm.libtcgemm_lab"}  # they are no Python modules


def examples() -> dict[str, doctest.DocTest]:
    """Every docstring of the package that has an example; a function can have several names."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    names = [module.name for module in pkgutil.walk_packages(tcgemm.__path__, "tcgemm.")]
    importlib.import_module("torch.distributed.tensor")  # imports the sharding rules in their order
    values = [tcgemm, *map(importlib.import_module, sorted(set(names) - LIBRARIES))]
    values += [getattr(tcgemm, name) for name in set(tcgemm.__all__) - {"__version__"}]
    tests = [test for value in values for test in finder.find(value)]
    return {test.docstring: test for test in tests if test.examples}


def test_every_example_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    tests = examples()  # not before: it imports every module
    assert len(tests) > 30
    assert {tcgemm.mm.__doc__, tcgemm.nn.Linear.__doc__, tcgemm.compare.__doc__} <= tests.keys()
    output: list[str] = []
    for test in tests.values():
        torch.manual_seed(0)
        linears = (torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        model = torch.nn.Sequential(linears[0], torch.nn.ReLU(), linears[1])
        test.globs = {**test.globs, "torch": torch, "tcgemm": tcgemm, "model": model}
        doctest.DocTestRunner(verbose=False).run(test, out=output.append)
    assert not output, "".join(output)
