"""The pages for contributors: paths that exist, and steps that leave out no file."""

import re

import pytest

from support.source_tree import CPP, ROOT, tree, without_comments

PAGES = sorted((ROOT / "docs/dev").rglob("*.md"))
NAMES = [str(page.relative_to(ROOT / "docs/dev")) for page in PAGES]
# A folder of ours with what follows it, or any name with a suffix of ours.
PATH = re.compile(
    r"(?<![\w/.<*}-])(?:(?:csrc|tcgemm|tests|benchmarks|docs)/[\w./-]*[\w/]"
    r"|[\w/.-]*\w\.(?:h|cuh|cu|cpp|py|md|toml))(?![\w*<{]|[-/.][\w*<{])"
)
# The folders that a page may start from: a page about csrc writes `plan/sm90.cpp`.
STARTS = ("", "csrc", "csrc/kernels", "csrc/kernels/sm90", "tcgemm", "tcgemm/nn", "tcgemm/override")
STARTS += ("tests", "docs/dev", "docs/dev/kernels", "docs")
# A file that a build writes, and files that the reader of a page would add.
MADE = {"tcgemm/libtcgemm.so", "csrc/kernels/sm100/", "csrc/plan/sm100.cpp"}


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
