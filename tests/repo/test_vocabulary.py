"""Words of this project's past that the field has a standard term for, and fragments of sentences.

The rules read identifiers, comments and docstrings; of a page of documentation the whole text.
Other texts are data: fields of stored results and names of public functions stay as they are.
"""

import ast
import functools
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
    "ring": "pipeline (of stages)",
    "weigh": "apply_scales",
    "promises": "targets",
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
# Folders and files whose words are all standard. The rule reads identifiers and comments.
ENFORCED = ("csrc/", "tcgemm/", "tests/", "benchmarks/", "docs/", "README.md", "CONTRIBUTING.md")
ENFORCED += ("setup",)
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


@functools.cache
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
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
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


# Sentences. A fragment such as "What a row holds." has no subject, and a kernel is no person that
# wants something and hands it over.

FRAGMENT = re.compile(r"(?:^|[.?!:] )((?:What|Of|Those|Whether) [^.?!]*[.?!:]?)")
PERSON = re.compile(r"\b(hands?|handed|meets?|told|wants?|teach|teaches)\b")
PROSE = ("csrc/", "tests/")


def paragraphs(path: str, text: str) -> list[tuple[int, str]]:
    """(line, text) of each comment and of each paragraph of a docstring, without drawings."""
    if path.endswith(CPP):
        lines = [
            (number, found.group(1))
            for number, line in enumerate(text.splitlines(), 1)
            if (found := re.search(r"(?:^|\s)// ?(.*)$", line))
        ]
    else:
        lines = [(n, piece) for n, piece in read_python(text) if not piece.isidentifier()]
        lines = [(n, piece.removeprefix("#").removeprefix(" ")) for n, piece in sorted(lines)]
    found: list[tuple[int, str]] = []
    last = -1
    for number, line in lines:
        if line and not line.startswith("  "):
            if number == last + 1:
                found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
            else:
                found.append((number, line.strip()))
            last = number
    return found


def broken_sentences(path: str, text: str) -> list[str]:
    return [
        f"{path}:{number} {found}"
        for number, paragraph in paragraphs(path, text)
        for found in (*FRAGMENT.findall(paragraph), *PERSON.findall(paragraph))
    ]


def test_comments_are_sentences():
    files = {p: text for p, text in tree(*CPP, ".py").items() if p.startswith(PROSE)}
    bad = [c for p, text in files.items() if p not in EXCEPT for c in broken_sentences(p, text)]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("path", "bad", "good"),
    [
        (
            "a.h",
            "// What a row holds.\nint x;",
            "// The content of a row, and what it is for.\nint x;",
        ),
        ("a.h", "int x;  // of a row. Those of b\n", "int x;  // of a row\n"),
        ("a.h", "// It is 1. Of two, the\n// first.\nint x;", "//  Of: a drawing\nint x;"),
        ("a.h", "// The kernel hands it on.", "// The kernel passes it on."),
        ("a.py", '"""Whether it runs."""', '"""True if it runs. Which one does?"""'),
        ("a.py", "# What it is.", 'x = "What it is."'),
    ],
)
def test_sentences_can_fail(path, bad, good):
    assert broken_sentences(path, bad)
    assert not broken_sentences(path, good)
