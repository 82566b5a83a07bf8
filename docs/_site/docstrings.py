"""Extension of mkdocstrings: docstrings as the API pages show them.

The pages are made from the source alone, which has the overloads and the names of types. The
decorator `documented` gives mm, linear and others a text that they share and the options of their
signature, so both are the imported ones. What Markdown or mkdocstrings would misread is written in
their way.
"""

import inspect
import re

from griffe import Docstring, Extension, Parameter, ParameterKind, Parameters, dynamic_import

REPLACED = (
    (re.compile(r"^( *)Example:$", re.MULTILINE), r"\1Examples:"),
    (re.compile(r"^( *)(Arguments of .*):$", re.MULTILINE), r"\1Keyword Args: \2"),
    (re.compile(r"::$", re.MULTILINE), ":"),
    (re.compile(r'("[^"\n ]*\*[^"\n ]*")'), r"`\1`"),
)
# Several arguments may share a line, and the signature has the types.
LENIENT = {"warn_unknown_params": False, "warn_missing_types": False}
COLUMNS = re.compile(r"^( *)\S+(?: \S+)* {2,}\S")


def with_columns(text):
    """Aligned columns, as literal blocks. Examples are such blocks already, and so are indented
    lines after an empty one."""
    lines, rows, examples = [], [], None
    for line in [*text.splitlines(), ""]:
        indent = len(line) - len(line.lstrip())
        if examples is not None and line and indent <= examples:
            examples = None
        if line.strip() == "Examples:":
            examples = indent
        if examples is None and COLUMNS.match(line):
            rows.append(line)
            continue
        margin = COLUMNS.match(rows[0])[1] if rows else ""
        if len(rows) > 1 and not (margin and not lines[-1]):
            rows = [f"{margin}```text", *rows, f"{margin}```"]
        lines += [*rows, line]
        rows = []
    return "\n".join(lines[:-1])


def parameters_of(function):
    """The parameters of the imported function, in griffe's form."""
    kinds = {kind.value: kind for kind in ParameterKind}
    return Parameters(
        *(
            Parameter(
                parameter.name,
                annotation=inspect.formatannotation(parameter.annotation).replace("torch.T", "T"),
                kind=kinds[parameter.kind.description],
                default=None if parameter.default is parameter.empty else repr(parameter.default),
            )
            for parameter in inspect.signature(function).parameters.values()
        )
    )


class Docstrings(Extension):
    def on_instance(self, *, obj, **_):
        if obj.is_alias:
            return
        decorators = obj.decorators if obj.is_function else []
        if any(decorator.callable_path.endswith(".documented") for decorator in decorators):
            function = dynamic_import(obj.path)
            text = inspect.getdoc(function)
            if text != obj.docstring.value:
                obj.docstring = Docstring(text, parent=obj, parser="google", parser_options=LENIENT)
            obj.parameters = parameters_of(function)
        if obj.docstring:
            for pattern, text in REPLACED:
                obj.docstring.value = pattern.sub(text, obj.docstring.value)
            obj.docstring.value = with_columns(obj.docstring.value)
