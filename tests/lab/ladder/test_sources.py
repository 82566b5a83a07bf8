"""The sources of the steps, as a checkout and as a wheel have them."""

import shutil

import pytest

from tcgemm import _shipped
from tcgemm.lab.ladder import sources

from support.source_tree import ROOT

CSRC = ROOT / "csrc" / "lab"


@pytest.fixture(params=["checkout", "wheel"])
def place(request, tmp_path, monkeypatch):
    """A package without or with a checkout around it, and where its sources are."""
    package = tmp_path / "site" / "tcgemm"
    parts = {
        "checkout": package.parent / "csrc" / "lab",
        "wheel": package / "lab" / "ladder" / "csrc",
    }
    shutil.copytree(CSRC, parts[request.param])
    monkeypatch.setattr(_shipped, "PACKAGE", package)
    return parts[request.param]


def test_sources_are_found_in_a_checkout_and_in_a_wheel(place):
    assert sources.folder() == place
    assert sources.names() == sorted(path.stem for path in CSRC.glob("*.cu"))
    for name in sources.names():
        assert sources.source(name) == (CSRC / f"{name}.cu").read_text()


def test_without_sources_a_sentence_names_both_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(_shipped, "PACKAGE", tmp_path / "tcgemm")
    with pytest.raises(RuntimeError, match=r"csrc/lab or .*tcgemm/lab/ladder/csrc\.$"):
        sources.source("004_1_0")


def test_difference_has_the_changed_lines_and_two_around_them():
    lines = sources.difference("003_baseline", "003_permuted").splitlines()
    assert lines[:2] == ["--- 003_baseline.cu", "+++ 003_permuted.cu"]
    old, new = (
        "static __device__ int offset(int row, int chunk) { return row * 128 + " + rest
        for rest in ("chunk * 16; }", "(chunk ^ row % 8) * 16; }")
    )
    assert f"-{old}" in lines and f"+{new}" in lines
    last = lines.index(f"+{new}")
    assert [line[:1] for line in lines[last + 1 : last + 3]] == [" ", " "]
    assert lines[last + 3].startswith("@@")  # a third line of context would stand here
    assert sources.difference("004_1_0", "004_1_0") == ""


@pytest.mark.parametrize("names", [("004_9",), ("004_1_0", "004_9"), ("ladder",), ("../004_1_0",)])
def test_an_unknown_step_is_named_with_what_there_is(names):
    call = sources.source if len(names) == 1 else sources.difference
    with pytest.raises(ValueError, match=rf"^step is '{names[-1]}'; expected one of 000_hgemm, 00"):
        call(*names)
