"""The form of a guide: its purpose, an example, then the rules, limits and links."""

import re

import pytest

from benchmarks.report import figures

from support.source_tree import ROOT

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
LETTERS = re.compile(r"\b(TN|NN|TT|NT)\b")


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_a_guide_has_its_parts_in_order(path):
    head, *sections = re.split(r"^## ", path.read_text(), flags=re.MULTILINE)
    title, purpose, *example = head.split("\n\n", 2)
    assert title.startswith("# ") and len(purpose.split()) > 20
    assert example and example[0].startswith("```python\n")
    assert sections[-1].startswith("Limits\n") and "\n\nMore: " in sections[-1]


@pytest.mark.parametrize(
    "path", [*GUIDES, ROOT / "docs" / "numerics" / "index.md"], ids=lambda path: path.stem
)
def test_layout_letters_are_explained(path):
    """By the table in dense.md, or by a link to it before or at the first use."""
    text = path.read_text()
    used = LETTERS.search(re.sub(r"```.*?```", lambda code: " " * len(code[0]), text, flags=re.S))
    if used is None or path.name == "dense.md":
        return
    paragraph = text.find("\n\n", used.start())
    assert "#layouts" in text[:paragraph], text[used.start() - 60 : used.end()]


def test_dense_products_explain_all_letters():
    section = (ROOT / "docs/guides/dense.md").read_text().split("## Layouts\n")[1]
    table = [line for line in section.splitlines() if line.startswith("| ")][1:5]
    assert [line[2:4] for line in table] == ["TN", "NN", "TT", "NT"]


def test_a_ratio_says_what_it_means():
    for path in figures.pages():
        text = path.read_text()
        for match in figures.BETWEEN.finditer(text):
            if "x torch's speed" in match[0]:
                assert "above 1, tcgemm is faster" in " ".join(text[: match.start()].split()[-60:])
