"""The Python blocks of docs/ run as they stand."""

import pytest

from support import pages
from support.source_tree import ROOT

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
