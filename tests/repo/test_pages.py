"""The pages of docs/: their Python blocks run, and their tables are those of the code."""

import re
import tomllib
from pathlib import Path

import pytest

import setup_toolchain as toolchain
import tcgemm
from tcgemm import info

from support import pages
from support.source_tree import CPP, ROOT, tree

# Pages whose blocks another test runs, because it looks at what they print or at several processes.
ELSEWHERE = {
    "guides/compare.md": "tests/comparison/test_documentation.py",
    "guides/explain.md": "tests/plan/test_explain.py",
    "guides/layers.md": "tests/nn/test_documentation.py",
    "guides/use.md": "tests/override/test_docs.py",
    "recipes/aotinductor.md": "tests/integration/test_recipes.py",
    "recipes/ddp.md": "tests/distributed/test_recipes.py",
    "recipes/fsdp2.md": "tests/distributed/test_recipes.py",
    "recipes/lora.md": "tests/integration/test_recipes.py",
    "recipes/onnx.md": "tests/integration/test_recipes.py",
    "recipes/tensor-parallel.md": "tests/distributed/test_recipes.py",
    "recipes/transformers.md": "tests/integration/test_recipes.py",
    "coming-from/torchao.md": "tests/integration/test_coming_from.py",
}
FILES = (path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = sorted(name for name in FILES if pages.blocks(f"docs/{name}"))


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_blocks_run(page, capsys):
    pages.run(f"docs/{page}")


@pytest.mark.parametrize("page", ELSEWHERE)
def test_another_test_names_the_page(page):
    assert page in PAGES
    assert f"docs/{page}" in (ROOT / ELSEWHERE[page]).read_text()


def test_every_block_of_python_is_found():
    """A fence that is indented or written in another way would never run."""
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for path in documents:
        fences = re.findall(
            r"^[ \t]*(?:```|~~~)\s*(?:python|py|pycon)\b.*$", path.read_text(), re.M
        )
        assert fences == ["```python"] * len(pages.blocks(str(path.relative_to(ROOT)))), path


def test_support_table_is_the_catalog():
    text = (ROOT / "docs/support.md").read_text()
    table = re.search(r"<!-- support: begin.*? -->\n(.*?)\n<!-- support: end -->", text, re.DOTALL)
    assert table.group(1).strip() == info.support_table().strip(), (
        "run: python -m tcgemm --support-table"
    )


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
    listed = set(re.findall(rf"^\| `{name}`", text, re.MULTILINE))
    # Set by this checkout or by pytest-xdist, or common to all programs.
    others = {"PATH", "PYTHONPATH", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTEST_XDIST_WORKER"}
    assert {"TCGEMM_LIBRARY", "CXX", "MAX_JOBS"} <= read
    assert read - others == listed - {"ONEDNN_MAX_CPU_ISA"}
    assert "ONEDNN_MAX_CPU_ISA" in listed


def test_install_page_has_the_facts_of_the_build():
    text = " ".join((ROOT / "docs/install.md").read_text().split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    kinds = " ".join(project["project"]["classifiers"])
    versions = re.findall(r"Python :: (3\.\d+)", kinds)
    oldest_torch = re.search(r"torch>=(\d+\.\d+)", project["project"]["dependencies"][0])[1]
    default_torch = re.search(r"^TORCH \?= (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert f"Python {versions[0]} to {versions[-1]} and torch {oldest_torch} or later" in text
    assert f"the default is {default_torch}" in text
    assert f"`{toolchain.DEFAULT_ARCHES}`" in text and toolchain.PIP_TOOLKIT in text
    assert all(f"of more than {limit} bytes" in text for limit in toolchain.SPILL_LIMITS.values())
    assert project["build-system"]["requires"][0] in text
    assert f"{tcgemm.__version__}+cpu" in text
