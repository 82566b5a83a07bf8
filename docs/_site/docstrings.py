"""Extension of mkdocstrings: docstrings as the API pages show them.

The pages are made from the source alone, which has the overloads and the names of types. mm, linear
and others share a text that the decorator `documented` inserts, so their docstring is the imported
one. What Markdown or mkdocstrings would misread is written in their way.
"""

import inspect
import re

from griffe import Docstring, Extension, dynamic_import

REPLACED = (
    (re.compile(r"^( *)Example:$", re.MULTILINE), r"\1Examples:"),
    (re.compile(r"^( *)(Arguments of .*):$", re.MULTILINE), r"\1Keyword Args: \2"),
    (re.compile(r"::$", re.MULTILINE), ":"),
    # Aligned columns stay aligned.
    (re.compile(r"((?:^\S+(?: \S+)* {2,}\S.*\n){2,})", re.MULTILINE), "```text\n\\1```\n"),
    (re.compile(r'("[^"\n ]*\*[^"\n ]*")'), r"`\1`"),
)


class Docstrings(Extension):
    def on_instance(self, *, obj, **_):
        if obj.is_alias:
            return
        decorators = obj.decorators if obj.is_function else []
        if any(decorator.callable_path.endswith(".documented") for decorator in decorators):
            text = inspect.getdoc(dynamic_import(obj.path))
            obj.docstring = Docstring(text, parent=obj, parser="google")
        if obj.docstring:
            for pattern, text in REPLACED:
                obj.docstring.value = pattern.sub(text, obj.docstring.value)
