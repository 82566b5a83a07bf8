"""The pages: their Python blocks run, their tables agree with the code, and paths exist."""

import re
from pathlib import Path

import pytest

from tcgemm import info

from support import pages
from support.source_tree import CPP, ROOT, tree

# Pages whose blocks another test runs, because it looks at what they print or at several processes.
ELSEWHERE = {
    "guides/compare.md": "tests/measure/compare/test_documentation.py",
    "guides/explain.md": "tests/plan/test_explain.py",
    "guides/layers.md": "tests/nn/test_documentation.py",
    "guides/use.md": "tests/override/test_docs.py",
    "recipes/aotinductor.md": "tests/integration/test_recipes.py",
    "recipes/ddp.md": "tests/distributed/test_recipes.py",
    "recipes/fsdp2.md": "tests/distributed/test_recipes.py",
    "recipes/lora.md": "tests/integration/test_recipes.py",
    "recipes/onnx.md": "tests/integration/test_recipes.py",
    "recipes/tensor-parallel.md": "tests/distributed/test_recipes.py",
    "recipes/train-and-serve.md": "tests/integration/test_recipes.py",
    "recipes/transformers.md": "tests/integration/test_recipes.py",
    "coming-from/compressed-tensors.md": "tests/integration/test_coming_from.py",
    "coming-from/liger.md": "tests/integration/test_coming_from.py",
    "coming-from/torchao.md": "tests/integration/test_coming_from.py",
}
FILES = (path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = sorted(name for name in FILES if pages.blocks(f"docs/{name}"))
DEVELOPERS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/dev").rglob("*.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_blocks_run(page, capsys):
    pages.run(f"docs/{page}")


def test_the_example_of_the_readme_runs(capsys):
    pages.run("README.md")
    output = capsys.readouterr().out
    assert "1 swapped, 0 skipped" in output and "x torch" in output
    assert re.search(r"kernel +sm\d+a?_bf16_f32", output)


def test_every_block_of_python_is_found():
    """A fence that is indented or written in another way would never run."""
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for path in documents:
        fences = re.findall(
            r"^[ \t]*(?:```|~~~)\s*(?:python|py|pycon)\b.*$", path.read_text(), re.M
        )
        assert fences == ["```python"] * len(pages.blocks(str(path.relative_to(ROOT)))), path


@pytest.mark.parametrize("page", ["../README.md", *PAGES])
def test_blocks_import_what_they_use(page):
    """Blocks of one page may share tensors, but whoever copies a block has its imports."""
    assert not pages.without_import(f"docs/{page}")


def test_support_table_is_the_catalog():
    text = (ROOT / "docs/support.md").read_text()
    table = re.search(r"<!-- support: begin.*? -->\n(.*?)\n<!-- support: end -->", text, re.DOTALL)
    assert table.group(1).strip() == info.support_table().strip(), "run: tcgemm --support-table"


def test_environment_variables_stand_on_their_page():
    name = r"([A-Z][A-Z_]{2,})"
    read = set()
    for path, text in tree(*CPP, ".py").items():
        if path.startswith("setup") or not Path(path).name.startswith("test_"):
            read |= set(re.findall(r"(?:environ|getenv)\b[^\n]*?\b(TCGEMM_[A-Z_]+)", text))
            read |= set(re.findall(rf"\benviron(?:\.get\(|\[)\"{name}\"", text))
            read |= set(re.findall(rf"\"{name}\" (?:not )?in (?:os\.)?environ", text))
            read |= set(re.findall(rf"find_tool\(\"{name}\"", text))
    read |= set(re.findall(r"\b(TCGEMM_[A-Z_]+)=", (ROOT / "Makefile").read_text()))
    text = (ROOT / "docs/environment.md").read_text()
    rows = set(re.findall(rf"^\| `{name}`", text, re.MULTILINE))
    # Set by this checkout or by pytest-xdist, or common to all programs.
    ignored = {"PATH", "PYTHONPATH", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTEST_XDIST_WORKER"}
    assert {"TCGEMM_LIBRARY", "CXX", "MAX_JOBS"} <= read
    assert read - ignored == rows - {"ONEDNN_MAX_CPU_ISA"}
    assert "ONEDNN_MAX_CPU_ISA" in rows


# What a page names is there. A strict build of the site looks at the links of docs/.

# A folder of ours with what follows it, or any name with a suffix of ours.
PATH = re.compile(
    r"(?<![\w/.<*}-])(?:(?:csrc|tcgemm|tests|benchmarks|docs)/[\w./-]*[\w/]"
    r"|[\w/.-]*\w\.(?:h|cuh|cu|cpp|py|md|toml))(?![\w*<{]|[-/.][\w*<{])"
)
# The folders that a page may start from: a page about csrc writes `plan/sm90.cpp`.
STARTS = ("", "csrc", "csrc/kernels", "csrc/kernels/sm90", "tcgemm", "tcgemm/nn", "tcgemm/override")
STARTS += (
    "tests",
    "tests/support",
    "docs/dev",
    "docs/dev/kernels",
    "docs",
    "benchmarks/experiments",
)
# Files that a build, a reader of a page or a measurement adds.
MADE = {"tcgemm/libtcgemm.so", "csrc/kernels/sm100/", "csrc/plan/sm100.cpp"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "CHANGELOG.md", *DEVELOPERS])
def test_every_path_exists(page):
    paths = set(PATH.findall((ROOT / page).read_text())) - MADE
    assert not [path for path in paths if not any((ROOT / x / path).exists() for x in STARTS)]


def test_links_of_the_readme_and_of_notebooks_lead_to_files():
    files = [ROOT / "README.md", *(ROOT / "benchmarks/notebooks").rglob("*.ipynb")]
    pattern = re.compile(r"\]\((?!\w+:)([^)#\s]*[./][^)#\s]*)")
    links = [path.parent / link for path in files for link in pattern.findall(path.read_text())]
    assert len(links) > 20
    assert not [str(link) for link in links if not link.exists()]
