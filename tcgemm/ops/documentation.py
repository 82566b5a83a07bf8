"""Documentation that several functions share, as help() shows it."""

import inspect
from typing import TypeVar

from tcgemm.typing import Options

Function = TypeVar("Function")


def documented(function: Function) -> Function:
    """Replaces the last paragraph of a product's docstring, which names tcgemm.typing.Options for
    editors, by the text of Options. `python -OO` drops docstrings.
    """
    if function.__doc__ is None or Options.__doc__ is None:
        return function
    shared = inspect.cleandoc(Options.__doc__).split("\n\n", 1)[1]
    own = inspect.cleandoc(function.__doc__).rsplit("\n\n", 1)[0]
    function.__doc__ = f"{own}\n\n{shared}\n"
    return function
