"""The tables of figures in the guides, and the stored sums of emulated GPUs."""

import shutil

import pytest
import torch

from benchmarks import current
from benchmarks.report import figures, models, sums
from tcgemm import emulate
from tcgemm.measure.results import Results
from tcgemm.numerics import accumulation, formats, low_precision, machine

from support.bench_fixtures import HEADER, row_of_model


def test_the_figures_are_those_of_the_results(tmp_path):
    for name in ("guides", "numerics"):
        shutil.copytree(figures.DOCS / name, tmp_path / name)
    assert figures.main(["--docs", str(tmp_path)]) == 0
    names = []
    for path in figures.pages():
        text = (tmp_path / path.relative_to(figures.DOCS)).read_text()
        assert path.read_text() == text, "run: python -m benchmarks figures"
        names += [match[2] for match in figures.BETWEEN.finditer(text)]
    assert sorted(names) == sorted(figures.tables())


def test_the_stored_sums_are_those_of_the_emulator():
    content = sums.emulated()
    machines = [machine.emulated(name) for name in ("A100", "H200")]
    assert content["tables"] == [low_precision.run(machines).facts()]
    assert content["formats"] == [formats.run().facts()]
    a, b = accumulation.operands(512, "uniform", torch.float8_e4m3fn, 8)
    words = {"precision": "fast", "device": "H200"}
    kernel = accumulation.kernel_of_large(512, torch.float8_e4m3fn, **words)
    result = emulate.mm(a, b, precision="fast", kernel=kernel, before_activation=True)
    rms = accumulation.error(result, a, b)[1]
    rms_of_curve = content["outside"][1]["curves"]["float8_e4m3fn, fast, uniform"]["512"]
    assert rms_of_curve == pytest.approx(rms, rel=1e-9)


def test_a_swap_is_shown_by_its_current_rows():
    def table(**times):
        early = {"facts": {"held_bytes": 1e9, current.OUTDATED: "older"}}
        late = {"facts": {"held_bytes": 2e9, "error": 0.01}, "blocks": 8}
        fields = {"early": early, "late": late}
        rows = [
            row_of_model("swap", "Linear", us, tokens=1, **fields[n]) for n, us in times.items()
        ]
        return models.swap_table(Results.of(rows, HEADER))

    both = table(early=100.0, late=200.0)
    assert both == table(late=200.0) and "| Linear | 200 us | 2.00 GB |" in both
    assert "swap_h200.svg" in both and table(early=100.0) == table() == ""
