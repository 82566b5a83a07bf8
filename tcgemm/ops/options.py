"""The keyword arguments of the products: how a call reads them, and the signatures that show them.

tcgemm.typing states their types and texts. Epilogue and Scales have their defaults.
"""

from __future__ import annotations

import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from tcgemm.ops.arguments import check_flag, number
from tcgemm.ops.epilogue import DEFAULT, NO_SCALES, Epilogue, Scales, shared
from tcgemm.typing import LinearOptions, Options

Function = TypeVar("Function", bound="Callable[..., Any]")

_SHARED = list(LinearOptions.__annotations__)
_SHARED.insert(_SHARED.index(Scales._fields[-1]) + 1, "amax")
ORDER = ("c", "beta", "bias", *_SHARED)  # in which signatures show the options
_DEFAULTS = {"amax": False, **Scales._field_defaults, **Epilogue._field_defaults}
_TENSORS = ("bias", "residual", "out")
_new = tuple.__new__  # the classes themselves take 0.2 us more
_EMPTY = [None, None, None, *DEFAULT, *NO_SCALES, False]  # the values of a call without options
_FIELDS = (*_TENSORS, *Epilogue._fields, *Scales._fields, "amax")
_SCALES = slice(len(_TENSORS) + len(Epilogue._fields), -1)
_EPILOGUE = slice(len(_TENSORS), _SCALES.start)
# The options that layers alone pass. No signature shows them.
_OF_LAYERS = {"linear": ("constant_b",)}


def _flag(function, name, value):
    check_flag(function, name, value)
    return bool(value)


_MAX_KNOWN = 1024  # a program whose alpha changes with each call does not fill the memory
# What an option becomes, and what refuses it. The dispatcher knows the types of all others.
_CONVERTED = {"alpha": number, "beta": number, "batch_invariant": _flag, "amax": _flag}
_known: dict[tuple[Any, ...], Epilogue] = {}  # by the function, the names and the values
_compiling = torch.compiler.is_compiling
_names: dict[str, tuple[str, ...]] = {}  # the options of each function
_places: dict[str, dict[str, int]] = {}  # where they stand in _FIELDS


def parse(
    function: str, options: dict[str, Any]
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Epilogue, Scales, Any]:
    """(bias, residual, out, epilogue, scales, amax) of the options of a product.

    It takes the tensors that every product has out of the dict, and keeps what it read of the
    words and numbers: reading them again takes 0.6 us of a call. It raises TypeError for an
    unknown name.
    """
    if "scale_a" in options or "scale_b" in options or _compiling():
        return read(function, options)  # the hash of a tensor takes longer
    bias = options.pop("bias", None)
    residual = options.pop("residual", None)
    out = options.pop("out", None)
    key = (function, *options, *options.values(), *map(type, options.values()))  # True == 1.0
    try:
        if (epilogue := _known.get(key)) is not None:
            return bias, residual, out, epilogue, NO_SCALES, False
    except TypeError:  # an option has no hash; the operator refuses it
        key = None
    _, _, _, epilogue, scales, amax = read(function, options)
    if (
        key is not None
        and scales is NO_SCALES
        and amax is False
        and not any(isinstance(value, Tensor) for value in options.values())
    ):
        if len(_known) == _MAX_KNOWN:
            _known.clear()
        _known[key] = epilogue
    return bias, residual, out, epilogue, scales, amax


def read(
    function: str, options: Mapping[str, Any]
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Epilogue, Scales, Any]:
    """What parse returns, of any function whose options are documented, from all its options."""
    places, values = _places[function], _EMPTY.copy()
    try:
        for name in options:
            values[places[name]] = options[name]
    except KeyError as error:
        raise _unknown(function, error.args[0]) from None
    for name, convert in _CONVERTED.items():
        if name in options:
            values[places[name]] = convert(function, name, options[name])
    epilogue = shared(_new(Epilogue, values[_EPILOGUE]))
    scale_a, scale_b, zero_a, zero_b, scale_out = scales = values[_SCALES]
    if scale_a is scale_b is zero_a is zero_b is scale_out is None:
        given = NO_SCALES
    else:
        given = _new(Scales, scales)
    return values[0], values[1], values[2], epilogue, given, values[-1]


def _unknown(function: str, name: str) -> TypeError:
    """The error for an option that the function does not have."""
    names = _names[function]
    near = difflib.get_close_matches(name, names, 1, 0.0)[0]
    return TypeError(
        f"tcgemm.{function}: there is no option {name!r}; the nearest is {near!r}, and the "
        f"options are {', '.join(names)}."
    )


def documented(options: type, name: str | None = None) -> Callable[[Function], Function]:
    """The decorator of a function whose **options are this TypedDict.

    It sets the signature, which spells the options, and puts the text of Options in place of the
    last paragraph of a docstring that refers to it. The argument "options" of other docstrings
    becomes the names that they do not describe. `python -OO` drops docstrings.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = list(signature.parameters.values())[:-1]
        positional = [parameter for parameter in own if parameter.kind is not _KEYWORD]
        keywords = {parameter.name: parameter for parameter in own if parameter.kind is _KEYWORD}
        for key, annotation in {"amax": bool, **options.__annotations__}.items():
            default = _DEFAULTS.get(key)
            parameter = inspect.Parameter(key, _KEYWORD, default=default, annotation=annotation)
            keywords.setdefault(key, parameter)
        names = (
            *filter(keywords.__contains__, ORDER),
            *(key for key in keywords if key not in ORDER),
        )
        parameters = [*positional, *map(keywords.__getitem__, names)]
        function.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore
        key = name or function.__name__
        _names[key] = (*(key for key in ("bias",) if key in signature.parameters), *names)
        known = (*_names[key], *_OF_LAYERS.get(key, ()))
        _places[key] = {field: _FIELDS.index(field) for field in _FIELDS if field in known}
        if function.__doc__ is None or Options.__doc__ is None:
            return function
        text = inspect.cleandoc(function.__doc__)
        if _REFERENCE in text:
            shared = inspect.cleandoc(Options.__doc__).split("\n\n", 1)[1]
            function.__doc__ = text.rsplit("\n\n", 1)[0] + f"\n\n{shared}\n"
        else:
            described = {key for line in _ARGUMENT.findall(text) for key in line.split(", ")}
            listed = ", ".join(key for key in names if key not in described)
            function.__doc__ = _OPTIONS.sub(lambda line: _lines(listed, line[1]), text)
        return function

    return decorate


def _lines(names: str, text: str) -> str:
    """Lines of a docstring that say the same of all names."""
    parts = textwrap.wrap(names, 92 - len(text))
    return "\n".join(f"    {part.removesuffix(',')}: {text}" for part in parts)


_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_ARGUMENT = re.compile(r"^    (\w+(?:, \w+)*)(?: \(.*?\))?:", re.MULTILINE)
_REFERENCE = "tcgemm.typing.Options describes"
_OPTIONS = re.compile(r"^    options: (.*)$", re.MULTILINE)
