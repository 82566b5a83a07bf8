"""The notebooks run, their outputs are of the code that is there, and cells have their numbers."""

import copy
import json
import re
import time

import pytest

from benchmarks import run_notebooks

from support.source_tree import ROOT

NAMES = run_notebooks.names()
TABLES = {"quickstart": 3}  # tables that a run shows, and words that it prints
SAID = {"quickstart": ("swapped",)}
LARGEST_PICTURE = 150_000  # bytes
# Seconds of a run without a GPU on 2 cores, at most: twice what they took beside other processes.
SECONDS = {
    "000_turing_hgemm": 17,
    "001_wmma_f64": 22,
    "002_ladder": 13,
    "003_numerics_and_sparse": 50,
    "003_throughput": 16,
    "004_to_cublas": 18,
    "drifting_sums": 23,
    "quickstart": 20,
}
# Names of things, such as the documents 000 to 004, kinds of sparsity, years.
NOT_FIGURES = re.compile(r"`[^`]*`|\]\([^)]*\)|\b00\d\b|\b[12]:[24]\b|\b20[12]\d\b|\bB\d\b")


def cells(name, kind):
    notebook = json.loads((run_notebooks.FOLDER / f"{name}.ipynb").read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def printed(cell):
    """The text that is stored below a cell; a picture's bytes are none."""
    found = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        found += [output.get("text", ""), *(data[kind] for kind in data if kind != "image/png")]
    return "\n".join("".join(each) for each in found if isinstance(each, str | list))


def numbers(text):
    """The numbers of a text that stand alone: 1.5, 4096, 97 %, but not those of m16n8k16."""
    alone = r"(?<![\w.:/-])\d[\d,]*(?:\.\d+)?(?![\w:]|\.\d)"
    return {each.rstrip(",") for each in re.findall(alone, NOT_FIGURES.sub("", text))}


def unsupported(prose, source):
    """Numbers of the prose that no cell has as a whole: 1.5 is not in 21.5 or 1.53."""
    known = set(re.findall(r"(?<![\d.])\d[\d,]*(?:\.\d+)?", source))
    return sorted(numbers(prose) - {number.rstrip(",") for number in known})


@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name, tmp_path, record_property):
    pytest.importorskip("nbclient")
    pytest.importorskip("matplotlib")
    started = time.monotonic()
    notebook = run_notebooks.read(name)
    run_notebooks.execute(notebook, tmp_path)
    kinds = {output.output_type for cell in notebook.cells for output in cell.get("outputs", [])}
    assert "stream" in kinds and "error" not in kinds
    shown = "\n".join(printed(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert shown.count("<table") >= TABLES.get(name, 0)
    assert all(word in shown for word in SAID.get(name, ()))
    seconds = time.monotonic() - started
    record_property("seconds", seconds)
    assert seconds < SECONDS[name]


def test_all_of_them_take_less_than_three_minutes():
    assert sorted(SECONDS) == NAMES and sum(SECONDS.values()) < 180


@pytest.mark.parametrize("name", NAMES)
def test_the_outputs_are_of_this_code(name):
    notebook = json.loads((run_notebooks.FOLDER / f"{name}.ipynb").read_text())
    assert run_notebooks.recorded_hash(notebook) == run_notebooks.code_hash(notebook), (
        f"python -m benchmarks notebooks {name}"
    )
    code = cells(name, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert any(cell["outputs"] for cell in code)


def test_another_code_has_another_hash():
    notebook = json.loads((run_notebooks.FOLDER / f"{NAMES[0]}.ipynb").read_text())
    changed = copy.deepcopy(notebook)
    code = next(cell for cell in changed["cells"] if cell["cell_type"] == "code")
    code["source"] = [*code["source"], "\n# more"]
    assert run_notebooks.code_hash(changed) != run_notebooks.recorded_hash(notebook)
    prose = copy.deepcopy(notebook)
    prose["cells"][0]["source"] = ["another title"]
    assert run_notebooks.code_hash(prose) == run_notebooks.recorded_hash(notebook)


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_the_prose_come_from_cells(name):
    source = "\n".join("".join(cell["source"]) + printed(cell) for cell in cells(name, "code"))
    prose = "\n".join("".join(cell["source"]) for cell in cells(name, "markdown"))
    assert unsupported(prose, source) == []


def test_a_number_of_its_own_is_found():
    assert unsupported("It takes 12.5 us for 4,096 rows, 3 % more; m16n8k16, 2:4, 003.", "3") == [
        "12.5",
        "4,096",
    ]
    assert unsupported("`x = 7` and 12.5", "12.5") == []
    assert unsupported("12.5, 3 and 1.5", "112.5 12.53 13 0.3 3e5 21.5") == ["1.5", "12.5"]
    assert unsupported("16 bytes", "m16n8k16") == []


def test_a_picture_has_no_numbers():
    data = {"image/png": "iVBOR 12.5", "text/plain": ["<Figure>"]}
    assert printed({"outputs": [{"data": data}, {"text": ["7\n"]}]}).split() == ["<Figure>", "7"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_to_measure(name):
    """No stored output says that a result was missing."""
    said = "\n".join(map(printed, cells(name, "code")))
    assert not re.search(r"not measured:|is not measured|was not measured|, not measured", said)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_small(name):
    sizes = [
        len(output["data"]["image/png"]) * 3 // 4
        for cell in cells(name, "code")
        for output in cell["outputs"]
        if "image/png" in output.get("data", {})
    ]
    assert all(size < LARGEST_PICTURE for size in sizes)
    assert sizes, f"{name} has no picture"


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files(name):
    for cell in cells(name, "markdown"):
        for link in re.findall(r"\]\((?!\w+:)([^)#]+)", "".join(cell["source"])):
            assert (run_notebooks.FOLDER / link).resolve().exists(), link


def test_the_documentation_links_every_notebook():
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    for name in NAMES:
        assert any(f"benchmarks/notebooks/{name}.ipynb" in page for page in pages), name


def test_unknown_notebook(capsys):
    with pytest.raises(SystemExit):
        run_notebooks.main(["tomorrow"])
    assert "there is no notebook 'tomorrow'; expected one of" in capsys.readouterr().err


def test_check_finds_stale_outputs(tmp_path, monkeypatch, capsys):
    name = NAMES[0]
    notebook = json.loads((run_notebooks.FOLDER / f"{name}.ipynb").read_text())
    notebook["metadata"]["tcgemm"]["code"] = "0" * 64
    (tmp_path / f"{name}.ipynb").write_text(json.dumps(notebook))
    assert run_notebooks.main(["--check", name]) == 0
    monkeypatch.setattr(run_notebooks, "FOLDER", tmp_path)
    assert run_notebooks.main(["--check", name]) == 1
    assert "other code" in capsys.readouterr().out
