"""The sources of this checkout, as tests of the repository read them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP = (".h", ".cuh", ".cpp", ".cu")


def tree(*suffixes: str) -> dict[str, str]:
    """Path -> text of every source file of ours."""
    paths = [
        p
        for folder in ("csrc", "tcgemm", "tests", "benchmarks")
        for p in (ROOT / folder).rglob("*")
    ] + list(ROOT.glob("setup*.py"))
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in sorted(paths)
        if path.suffix in suffixes and "__pycache__" not in path.parts
    }


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def cycle(graph: dict[str, list[str]]) -> list[str]:
    """One circle of the graph, or nothing."""
    visited: set[str] = set()

    def walk(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return trail[trail.index(node) :]
        if node in visited:
            return []
        for target in graph.get(node, ()):
            if path := walk(target, [*trail, node]):
                return path
        visited.add(node)
        return []

    return next((path for node in graph if (path := walk(node, []))), [])
