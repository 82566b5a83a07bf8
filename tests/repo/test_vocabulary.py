"""Words of this project's past that the field has a standard term for: they must not come back.

Looked at are identifiers, comments and docstrings; in documentation, the whole text. Other texts
are data: fields of stored results and names of public functions stay as they are.
"""

import ast
import io
import itertools
import re
import tokenize

import pytest

from support.source_tree import CPP, ROOT, tree

# Word -> what to write. A word is a part of an identifier, snake_case or CamelCase, or of prose.
STANDARD = {
    "turn": "transpose (of data), ping-pong (of warpgroups), index or step (of a loop)",
    "slab": "epilogue staging buffer, smem_d",
    "verdict": "path decision (of split-FP32), outcome",
    "doubt": "error_threshold, needs_checks",
    "tame": "in range",
    "untame": "out_of_range",
    "blob": "workspace",
    "rival": "baseline",
    "split_notes": "range statistics",
    "neighbours": "interleaved (order of rows), adjacent",
    "hand_columns": "tma_store_columns",
    "send_columns": "tma_store_columns",
    "unscale": "rescale",
    "house": "repository",
    "rooms": "folders, layers",
    "door": "entry point",
    "mixes": "GemmTypes, combination of dtypes",
    "recall": "plan cache",
    "repair": "recompute",
    "teeth": "a check that can fail",
}
FORMS = {
    "turn": ("turns", "turned", "turning"),
    "slab": ("slabs",),
    "verdict": ("verdicts",),
    "doubt": ("doubts", "doubtful"),
    "blob": ("blobs",),
    "rival": ("rivals",),
    "neighbours": ("neighbour", "neighbouring"),
    "door": ("doors",),
    "repair": ("repairs", "repaired"),
}
WORDS = {form: word for word in STANDARD for form in (word, *FORMS.get(word, ()))}
# Folders and files whose words are all standard. What is read of them: identifiers and comments.
ENFORCED = ("csrc/", "tcgemm/", "tests/", "benchmarks/", "docs/", "README.md", "setup")
# The table itself.
EXCEPT = ("tests/repo/test_vocabulary.py",)
# Names that stay: fields of stored results, attributes and arguments that are public, old names of
# sets, an option of hypothesis, operators of torch.
FOREIGN = re.compile(
    r"\brival_us\b|`rival`|\brival, theirs\b|\b(print_blob|blob|turned_tiles)\b"
    r"|^turned$|\bturned(?=[,=])|`turned`|\b_amp_\w+|\bunscale_\b"
)


def words_of(text: str) -> set[str]:
    """Parts of identifiers and words of prose; compounds of two words, too."""
    found = set()
    for name in re.findall(r"[A-Za-z_]+", FOREIGN.sub("", text)):
        parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
        parts = [part.lower() for part in parts]
        found |= set(parts) | {f"{a}_{b}" for a, b in itertools.pairwise(parts)}
    return found


def read_python(text: str) -> list[tuple[int, str]]:
    """(line, text) of identifiers, comments and docstrings."""
    found = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in (tokenize.NAME, tokenize.COMMENT)
    ]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            lines = first.value.value.splitlines()
            found += [(first.lineno + index, line) for index, line in enumerate(lines)]
    return found


def read_cpp(text: str) -> list[tuple[int, str]]:
    return [
        (number, re.sub(r'"(\\.|[^"\\])*"', '""', line))
        for number, line in enumerate(text.splitlines(), 1)
    ]


def read(path: str, text: str) -> list[tuple[int, str]]:
    if path.endswith(".py"):
        return read_python(text)
    return read_cpp(text) if path.endswith(CPP) else list(enumerate(text.splitlines(), 1))


def coined_words(path: str, text: str) -> list[str]:
    return [
        f"{path}:{line} has {word!r}; write: {STANDARD[WORDS[word]]}"
        for line, piece in sorted(read(path, text))
        for word in sorted(words_of(piece) & WORDS.keys())
    ]


def sources() -> dict[str, str]:
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return tree(*CPP, ".py") | {str(p.relative_to(ROOT)): p.read_text() for p in documents}


def test_words_are_standard():
    files = {p: text for p, text in sources().items() if p.startswith(ENFORCED)}
    assert len(files) > 60
    bad = [
        c for p, text in files.items() if not p.startswith(EXCEPT) for c in coined_words(p, text)
    ]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("path", "bad", "good"),
    [
        ("a.py", "turned_rows = 1", "transposed_rows = 1"),
        ("a.py", "x = first_turn", "x = returned"),
        ("a.py", "class SlabBytes: pass", 'FIELD = "rival_us"'),
        ("a.py", "# The verdict of a row", "# The path decision of a row"),
        ("a.py", 'def f():\n    """A rival."""', 'def f():\n    return "a rival"'),
        ("a.cuh", "int kSlabBytes;", "int kStagingBytes;"),
        ("a.cuh", "hand_columns(x);  // all", 'fail("a sentence");'),
        ("README.md", "an operand that is turned", "a transposed operand, in return"),
    ],
)
def test_rule_can_fail(path, bad, good):
    assert coined_words(path, bad)
    assert not coined_words(path, good)
