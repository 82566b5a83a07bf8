"""A run goes on where another one of the same GPU and size ended, and refuses other files."""

import json

import pytest

from tcgemm.cli import main
from tcgemm.lab import ladder
from tcgemm.lab.ladder import measure, problem

GPU = "NVIDIA H200"


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that measures nothing."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(measure, "facts", lambda _: {"gpu": GPU})
    monkeypatch.setattr(measure, "_measure", lambda *_: pytest.fail("it measures"))


def file_of(document, size, path):
    """A file with all records of a ladder at this size; those with sizes of their own keep them."""
    records = []
    for step, variant in problem.every([document]):
        own = (8, 8, 4) if step.name in problem.ALONE else problem.sizes(size)
        records.append(problem.record(step, variant, own) | {"us": 10.0, "tflops": 1.0})
    measure.save({"header": {"gpu": GPU}, "records": records}, path)
    return path


@pytest.mark.parametrize("document", ["001", "004"])
def test_a_file_of_the_same_size_goes_on(gpu, tmp_path, document):
    path = file_of(document, 4096, tmp_path / "x.json")
    results = ladder.run(document, 4096, path=path, resume=True)
    assert len(results["records"]) == len(measure.load(path)["records"]) > 9


def test_the_size_of_the_document_is_compared_too(gpu, tmp_path):
    path = file_of("004", 4096, tmp_path / "x.json")
    assert ladder.run("004", path=path, resume=True)["records"]
    second = file_of("004", 1024, tmp_path / "y.json")
    with pytest.raises(ValueError, match=r"^size is 4096x4096x4096, but .*y\.json has records of"):
        ladder.run("004", path=second, resume=True)


def test_another_size_is_refused(gpu, tmp_path, capsys):
    path = file_of("001", 4096, tmp_path / "x.json")
    before = path.read_text()
    with pytest.raises(SystemExit):
        main(["ladder", "001", "--size", "8192", "--json", str(path), "--resume"])
    assert capsys.readouterr().err.endswith(
        f"error: size is 8192x8192x8192, but {path} has records of ladder 001 at 4096x4096x4096; "
        "resume with that size, or name another file.\n"
    )
    assert path.read_text() == before


def test_records_of_other_ladders_do_not_matter(gpu, tmp_path):
    path = file_of("004", 1024, tmp_path / "x.json")
    content = json.loads(path.read_text())
    content["records"] += json.loads(file_of("003", 2048, tmp_path / "y.json").read_text())[
        "records"
    ]
    path.write_text(json.dumps(content))
    assert ladder.run("003", path=path, resume=True)["records"]
