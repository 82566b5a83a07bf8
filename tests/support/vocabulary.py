"""Words of this project's past that the field has a standard term for: `make lint` warns of them.

    python tests/support/vocabulary.py        prints FILE:LINE and what to write; the status is 0

A word is found in identifiers (snake_case, CamelCase), comments, docstrings and pages. Other texts
are data. A new word is a row of WORDS.
"""

import functools
import io
import itertools
import re
import sys
import tokenize
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from support.source_tree import CPP, ROOT, tree

# Forms of a word, or two words with a line between them: what to write.
WORDS = {
    "door doors": "entry point",
    "doubt doubts doubtful": "error_threshold, needs_checks",
    "hand_columns send_columns": "tma_store_columns",
    "house": "repository",
    "mixes": "GemmTypes, combination of dtypes",
    "neighbour neighbours neighbouring": "interleaved (order of rows), adjacent",
    "prepack prepacks prepacked": "prepare, terms",
    "promises": "targets",
    "recall": "plan cache",
    "repair repairs repaired": "recompute",
    "ring": "pipeline (of stages)",
    "rival rivals": "baseline",
    "rooms": "folders, layers",
    "slab slabs": "epilogue staging buffer, smem_d",
    "split_notes": "range statistics",
    "tame": "in range",
    "teeth": "a check that can fail",
    "turn turns turned turning": "transpose (of data), index or step (of a loop)",
    "untame": "out_of_range",
    "verdict verdicts": "path decision (of split-FP32), outcome",
    "weigh": "apply_scales",
}
# Words of comments and docstrings in csrc/ and tests/: a kernel is no person.
PERSONS = {
    "hand hands handed": "pass",
    "meet meets": "what happens",
    "teach teaches told": "what sets the value",
    "want wants": "what is needed",
}


def by_form(table: dict[str, str]) -> dict[str, str]:
    return {form: advice for forms, advice in table.items() for form in forms.split()}


@functools.cache
def words_of(text: str) -> set[str]:
    """Parts of identifiers and words of prose; compounds of two words, too."""
    words = set()
    for name in re.findall(r"[A-Za-z_]+", text):
        parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]
        words |= {*parts, *map("_".join, itertools.pairwise(parts))}
    return words


def pieces(path: str, text: str) -> list[tuple[int, str, bool]]:
    """(line, text, whether it is a comment or a docstring) of what is no data."""
    if path.endswith(".py"):
        return [
            (token.start[0] + index, line, token.type != tokenize.NAME)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type in (tokenize.NAME, tokenize.COMMENT) or token.string.startswith('"""')
            for index, line in enumerate(token.string.splitlines())
        ]
    lines = list(enumerate(text.splitlines(), 1))
    if not path.endswith(CPP):
        return [(number, line, False) for number, line in lines]
    rows = []
    for number, line in lines:
        code, sign, comment = re.sub(r'"(\\.|[^"\\])*"', '""', line).partition("//")
        rows += [(number, code, False), (number, sign + comment, True)]
    return rows


def warnings(path: str, text: str) -> list[str]:
    words = by_form(WORDS)
    of_comments = words | (by_form(PERSONS) if path.startswith(("csrc", "tests")) else {})
    lines = []
    for line, piece, is_comment in pieces(path, text):
        table = of_comments if is_comment else words
        lines += [
            f"{path}:{line}: {word!r}; write: {table[word]}"
            for word in sorted(words_of(piece) & table.keys())
        ]
    return lines


def main() -> None:
    suffixes = (*CPP, ".py", ".md")
    pages = [path for path in (ROOT / "docs").rglob("*") if path.suffix in suffixes]
    pages += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    files = tree(*suffixes) | {str(path.relative_to(ROOT)): path.read_text() for path in pages}
    for path, text in sorted(files.items()):
        is_generated = path.startswith("benchmarks/results")  # by a program
        if not is_generated and path != "tests/support/vocabulary.py":
            for warning in warnings(path, text):
                print(warning)


if __name__ == "__main__":
    main()
