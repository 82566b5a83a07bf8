"""The pages for contributors, the changelog and the citation file.

Paths and make targets exist, steps leave out no file, and facts that stand elsewhere agree.
"""

import re
import tomllib

import pytest

import tcgemm

from support.source_tree import CPP, ROOT, tree, without_comments

PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs/dev").rglob("*.md")),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
# A folder of ours with what follows it, or any name with a suffix of ours.
PATH = re.compile(
    r"(?<![\w/.<*}-])(?:(?:csrc|tcgemm|tests|benchmarks|docs)/[\w./-]*[\w/]"
    r"|[\w/.-]*\w\.(?:h|cuh|cu|cpp|py|md|toml))(?![\w*<{]|[-/.][\w*<{])"
)
# The folders that a page may start from: a page about csrc writes `plan/sm90.cpp`.
STARTS = ("", "csrc", "csrc/kernels", "csrc/kernels/sm90", "tcgemm", "tcgemm/nn", "tcgemm/override")
STARTS += ("tests", "tests/support", "docs/dev", "docs/dev/kernels", "docs")
# Files that a build, a reader of a page or a measurement adds.
MADE = {"tcgemm/libtcgemm.so", "csrc/kernels/sm100/", "csrc/plan/sm100.cpp"}
MADE |= {
    f"benchmarks/results/{name}" for name in ("models", "swap", "rows", "tensor_parallel", "float8")
}


def missing_paths(text: str) -> list[str]:
    found = set(PATH.findall(text)) - MADE
    return sorted(
        path for path in found if not any((ROOT / start / path).exists() for start in STARTS)
    )


def code_of(path: str, text: str) -> str:
    return without_comments(text) if path.endswith(CPP) else text


def files_with(pattern: str, *folders: str) -> set[str]:
    """The files whose code matches; of Python also the documentation."""
    return {
        path
        for path, text in tree(*CPP, ".py").items()
        if path.startswith(folders) and re.search(pattern, code_of(path, text))
    }


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_path_exists(page):
    assert not missing_paths(page.read_text())


def test_a_path_can_be_missing():
    text = (
        "See `csrc/core/dtype.h`, csrc/kernels/sm90/, `plan/sm90.cpp`, `tests/none.py`, csrc/old."
    )
    assert missing_paths(text) == ["csrc/old", "tests/none.py"]
    assert missing_paths("csrc/ops/chick_*.cpp, results/<gpu>.md and docs/{a,b}.md") == []


@pytest.mark.parametrize(
    ("page", "pattern", "folders"),
    [
        ("add-a-dtype.md", r"\b(e5m2|E5M2|float8_e5m2|FLOAT8)\b", ("csrc/", "tcgemm/")),
        ("add-an-architecture.md", r"Arch::|\bkSm90a\b|\bkArch\b|\bsm90a\b", ("csrc/", "tcgemm/")),
        (
            "hidden-state.md",
            r"(?m)thread_local|std::once_flag|^@functools\.|^ +global \w|WeakSet|maxlen=",
            ("csrc/", "tcgemm/"),
        ),
    ],
)
def test_the_steps_name_every_file(page, pattern, folders):
    text = (ROOT / "docs/dev" / page).read_text()
    found = files_with(pattern, *folders)
    assert len(found) > 5
    assert not sorted(
        path for path in found if path not in text and path.rsplit("/", 1)[0] + "/`" not in text
    )


# Make targets.


def targets(text: str) -> set[str]:
    """The targets that a page names, as `make x` or at the start of a line of code."""
    return set(re.findall(r"(?:`|^ {4}|^ {4}.* )make ([a-z][\w-]*)", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_make_target_exists(page):
    makefile = (ROOT / "Makefile").read_text()
    known = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    assert targets(page.read_text()) <= known


def test_make_targets_are_found():
    assert targets("Run `make test`, or\n\n    A=0 make build B=1\n    make x-y  # z") == {
        *("test", "build", "x-y")
    }


# CHANGELOG.md.

KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_changelog_keeps_its_form():
    text = (ROOT / "CHANGELOG.md").read_text()
    first, *others = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in others)
    for part in text.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.*)$", part, re.MULTILINE)
        assert kinds and kinds == [kind for kind in KINDS if kind in kinds]
        assert f"\n[{part.split(']')[0].lstrip('[')}]: https://" in text
        for entries in re.split(r"^### .*$", part, flags=re.MULTILINE)[1:]:
            assert entries.lstrip().startswith("- ")


def test_changelog_names_every_public_name():
    text = (ROOT / "CHANGELOG.md").read_text()
    names = [name for name in tcgemm.__all__ if name not in ("__version__", "Prepared")]
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)]


# CITATION.cff.

REQUIRED = {"cff-version", "message", "title", "authors"}
ALLOWED = REQUIRED | {
    *("abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords"),
    *("license", "license-url", "preferred-citation", "references", "repository"),
    *("repository-artifact", "repository-code", "type", "url", "version"),
}


def test_citation_is_valid_and_agrees():
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(cited) >= REQUIRED and set(cited) <= ALLOWED
    assert cited["cff-version"] == "1.2.0" and cited["type"] == "software"
    assert all(isinstance(value, str | list) for value in cited.values())
    assert cited["authors"] == project["authors"]
    assert cited["title"] == project["name"]
    assert cited["version"] == tcgemm.__version__
    assert cited["license"] == project["license"]
    assert cited["repository-code"] == project["urls"]["Homepage"]
    assert cited["keywords"] == project["keywords"]
