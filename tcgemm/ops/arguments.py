"""The sentences for arguments of a wrong Python type.

The dispatcher finds them and names its own types ("Optional[int]"), so a call that it has refused
is looked at again here. A call that it accepts pays nothing.
"""

import contextlib
import numbers
import operator
from typing import Any

import torch
from torch.autograd import forward_ad

from tcgemm.ops._torch_private import in_dual_level
from tcgemm.ops.activations import ACTIVATIONS
from tcgemm.ops.epilogue import Epilogue
from tcgemm.ops.memory import refused

_RESULTS = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int32),
)


def wrong_type(function: str, name: str, value: object) -> TypeError:
    """The error for an argument that is no tensor."""
    start = f"tcgemm.{function}: {name} must be a torch.Tensor, but is {type(value).__name__}"
    if isinstance(value, torch.nn.Module):
        return TypeError(f"{start}, a module; pass one of its tensors, such as its weight.")
    return TypeError(f"{start}; convert it with torch.as_tensor.")


def _check_activation(function: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        return
    shown = getattr(value, "__name__", type(value).__name__)
    word = shown.lower()
    if word == "gelu" and getattr(value, "approximate", "none") == "tanh":
        word = "gelu_tanh"
    names = ", ".join(f'"{word}"' for word in ACTIVATIONS)
    start = f"tcgemm.{function}: activation is {shown}, but it must be one of the words {names}"
    mend = f'pass "{word}"' if word in ACTIVATIONS else "pass one of these, or None"
    raise TypeError(f"{start}; {mend}.")


def _check_dtype(function: str, name: str, value: object) -> None:
    if value is None or value in _RESULTS:
        return
    if isinstance(value, torch.dtype):
        names = ", ".join(map(str, _RESULTS))
        raise RuntimeError(
            f"tcgemm.{function}: {name} is {value}, but results and accumulators have one of "
            f"{names}; pass one of these, or None."
        )
    raise TypeError(
        f"tcgemm.{function}: {name} is {value!r}, but it must be a torch.dtype or its name; pass "
        "one of torch's, such as torch.bfloat16, or None."
    )


def _check_word(function: str, name: str, value: object, mend: str) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(
            f"tcgemm.{function}: {name} is {value!r}, but it must be a str or None; {mend}."
        )


def check_words(function: str, epilogue: Epilogue) -> None:
    """Raises TypeError where an option that is no number has a wrong type."""
    _check_activation(function, epilogue.activation)
    _check_dtype(function, "out_dtype", epilogue.out_dtype)
    _check_dtype(function, "acc_dtype", epilogue.acc_dtype)
    _check_word(function, "precision", epilogue.precision, 'pass a word such as "highest"')


def check_options(
    function: str, epilogue: Epilogue, device: object = None, kernel: object = None
) -> None:
    """Raises TypeError for the first option of a wrong type, if there is one."""
    check_words(function, epilogue)
    gpu = 'pass the name of a GPU, such as "H200", or None for the GPU of the tensors'
    _check_word(function, "device", device, gpu)
    _check_word(function, "kernel", kernel, "pass a part of a kernel's name")


def check_amax(function: str, amax: object) -> None:
    """Raises TypeError unless amax is True or False."""
    check_flag(function, "amax", amax)


def check_flag(function: str, name: str, value: Any) -> None:
    """Raises TypeError unless the argument is True or False, as a bool, an int or a numpy.bool_."""
    if isinstance(value, int) and value in (0, 1):
        return
    kind = getattr(value, "dtype", None)  # of torch it is another word
    if kind == "bool" and getattr(value, "shape", None) == ():
        return
    raise TypeError(f"tcgemm.{function}: {name} is {value!r}, but it must be True or False.")


def integer(function: str, name: str, value: Any) -> int:
    """The int that the argument is. Raises TypeError for a bool, a float and all other types."""
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            return operator.index(value)
    whole = isinstance(value, float) and value.is_integer()
    mend = str(int(value)) if whole else "an int"
    raise TypeError(f"tcgemm.{function}: {name} is {value!r}, but it must be an int; pass {mend}.")


def number(function: str, name: str, value: Any) -> Any:
    """The float that alpha or beta is. A tensor of one number has no gradient, as in torch."""
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, torch.SymFloat | torch.SymInt):
        return value
    mend = "pass a float"
    if isinstance(value, torch.Tensor) and value.dim() == 0 and not value.is_complex():
        mend = f"pass a float: inside torch.compile the value of {name} is not known"
        if not torch.compiler.is_compiling():
            _check_constant(function, name, value)
            return value.item()
    shown = repr(value)
    if isinstance(value, torch.Tensor):
        shown = f"a tensor of shape {tuple(value.shape)}"
    raise TypeError(f"tcgemm.{function}: {name} is {shown}, but it must be a number; {mend}.")


def _check_constant(function: str, name: str, value: torch.Tensor) -> None:
    tangent = forward_ad.unpack_dual(value).tangent if in_dual_level() else None
    if value.requires_grad or tangent is not None:
        raise RuntimeError(
            f"tcgemm.{function}: {name} needs a gradient, but alpha and beta are constants of a "
            f"product; pass {name}.detach(), or multiply the tensors by it."
        )


def refusal(
    function: str, error: RuntimeError, epilogue: Epilogue, **others: object
) -> Exception | None:
    """The error to raise in place of `error`, with which the operator refused a call, or None.

    The general operators name no function or themselves, and the dispatcher names its own types.
    """
    if (out_of_memory := refused(error)) is not None:
        return out_of_memory
    text = str(error)
    for prefix in (
        "tcgemm: ",
        "tcgemm.scaled_mm: ",
        "tcgemm.scaled_mm_amax: ",
        "tcgemm.packed_mm: ",
        "tcgemm.packed_mm_amax: ",
    ):
        if text.startswith(prefix):
            return type(error)(f"tcgemm.{function}: {text.removeprefix(prefix)}")
    try:
        check_options(function, epilogue, **others)
    except (TypeError, RuntimeError) as better:
        return better
    return None
