"""The commands that measure, as the installed package has them."""

import pytest

import tcgemm
from tcgemm.cli import compare
from tcgemm.measure.compare import load
from tcgemm.measure.results import Results

from support.installed import Installed

SMALL = ["--dtypes", "f32,bfloat16", "--against", "torch", "--seconds", "0.004", "--device", "cpu"]

LAZY = """
import sys, tcgemm
assert not [name for name in sys.modules if name.startswith("tcgemm.measure")]
assert tcgemm.compare is tcgemm.measure.compare.compare and callable(tcgemm.measure.compare.load)
assert not hasattr(tcgemm, "measures")
"""


@pytest.mark.nightly
def test_the_installed_package_compares_and_measures_sets(tmp_path):
    installed = Installed(tmp_path)
    arguments = ["--shapes", "16x24x32,2x8x8x8", *SMALL, "--save", "found.json"]
    process = installed.run("-m", "tcgemm", "compare", *arguments)
    assert process.returncode == 0, process.stderr
    assert "x torch" in process.stdout and "2x8x8x8" in process.stdout
    assert process.stderr.count(" of 4: ") == 4
    result = load(tmp_path / "found.json")
    assert [row["dtype"] for row in result.rows] == ["f32", "f32", "bf16", "bf16"]

    smoke = ["--set", "smoke", "--dtype", "f32", "--layout", "TN", "--ms", "2", "--device", "cpu"]
    process = installed.run("-m", "tcgemm", "bench", *smoke, "--out", "bench.json")
    assert process.returncode == 0, process.stderr
    assert "3 of 3 cases done, 0 failed or wrong." in process.stdout
    rows = Results.load(tmp_path / "bench.json").rows
    assert {row["commit"] for row in rows} == {tcgemm.__version__}

    process = installed.run("-c", LAZY)
    assert process.returncode == 0, process.stderr

    process = installed.run("-m", "tcgemm", "compare", "--shapes", "8x8", "--quiet")
    assert process.returncode and "a shape is (m, n, k)" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_saved_table_is_printed_again(tmp_path, capsys):
    path = tmp_path / "a.json"
    arguments = ["--shapes", "16x24x32", *SMALL, "--quiet", "--layouts", "TN,NT"]
    assert compare.run([*arguments, "--save", str(path)]) == 0
    first = capsys.readouterr()
    assert not first.err and "NT" in first.out
    assert compare.run(["--load", str(path)]) == 0
    assert capsys.readouterr().out == first.out


def test_epilogues_and_pictures(tmp_path, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    picture = tmp_path / "a.png"
    options = ["--bias", "--activation", "gelu", "--residual", "--plot", str(picture), "--quiet"]
    assert compare.run(["--shapes", "16x24x32", *SMALL, *options]) == 0
    assert "bias+gelu+residual" in capsys.readouterr().out
    assert picture.stat().st_size > 1000


def test_a_wrong_result_is_an_error_of_the_command(tmp_path):
    path = tmp_path / "a.json"
    result = tcgemm.compare((8, 8, 8), against=(), seconds=0.002, progress=False)
    result.rows[0]["exact"] = False
    result.save(path)
    assert compare.run(["--load", str(path)]) == 1


@pytest.mark.parametrize("arguments", [[], ["--shapes", "8x8x8", "--load", "a.json"]], ids=str)
def test_either_shapes_or_a_file(arguments, capsys):
    with pytest.raises(SystemExit):
        compare.run(arguments)
    assert "--shapes" in capsys.readouterr().err
