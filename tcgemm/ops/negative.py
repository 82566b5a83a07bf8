"""out= tensors with torch's negative bit, such as x.conj().imag of a complex x.

torch's own fallback for this bit takes only operators that return what they write, and ours return
nothing. Without these kernels it raises an internal error, and the process aborts at exit.
"""

import torch

from tcgemm.ops.fake import WITH_OUT
from tcgemm.ops.operators import Operator

_library = torch.library.Library("tcgemm", "FRAGMENT")  # owns the registrations


def _resolved(value):
    return value.resolve_neg() if isinstance(value, torch.Tensor) else value


def _kernel(overload):
    """The kernel of an overload for calls of which some tensor has the bit."""

    def run(*args, out, **kwargs):
        args = [_resolved(value) for value in args]
        kwargs = {name: _resolved(value) for name, value in kwargs.items()}
        if not out.is_neg():
            return overload(*args, **kwargs, out=out)
        result = out.resolve_neg()  # grouped_mm may add to its values
        overload(*args, **kwargs, out=result)
        out.copy_(result)

    return run


def register(op: Operator) -> None:
    """Gives the overload .out of an operator its kernel for such tensors."""
    _library.impl(f"{op.name}.out", _kernel(op.out), "Negative")


for _op in WITH_OUT:
    register(_op)
