"""torch.ops.tcgemm_use.product: what the pass of fold.py puts into the graphs of torch.compile.

The operator asks at each call whether a tcgemm.use is active, as the kernels of kernels.py do, and
computes by torch's own functions if not. So compiled code needs no guard: it obeys the use that is
active when it runs.
"""

import functools
from collections.abc import Callable

import torch

from tcgemm.ops.activations import activate
from tcgemm.ops.epilogue import Epilogue
from tcgemm.override.kernels import Kernel
from tcgemm.override.product import Aten, Product, multiplies

_SCHEMA = (
    "product(Tensor a, Tensor b, Tensor? c=None, Tensor? bias=None, Tensor? residual=None, *, "
    "float alpha=1.0, float beta=1.0, str? activation=None) -> Tensor"
)


@functools.cache
def _label(dims: int, c: bool, bias: bool, activation: str | None, residual: bool) -> str:
    terms = {"c": c, "bias": bias, activation: activation, "residual": residual}
    product = "compiled mm" if dims == 2 else "compiled bmm"
    return " + ".join((product, *(name for name, there in terms.items() if name and there)))


def _bind(a, b, c=None, bias=None, residual=None, *, alpha=1.0, beta=1.0, activation=None):
    dims = a.dim()
    function = _label(dims, c is not None, bias is not None, activation, residual is not None)
    epilogue = Epilogue(activation, alpha, beta)
    return multiplies(a, b, dims) or Product(function, a, b, c, bias, residual, epilogue)


def _by_torch(
    _keys, a, b, c=None, bias=None, residual=None, *, alpha=1.0, beta=1.0, activation=None
):
    """The same by torch's functions, which count as their own calls."""
    add, multiply = (torch.addmm, torch.mm) if a.dim() == 2 else (torch.baddbmm, torch.bmm)
    if c is not None:
        result = add(c, a, b, alpha=alpha, beta=beta)
        result = result if bias is None else result + bias
    elif bias is not None:
        result = add(bias, a, b, alpha=alpha)
    else:
        result = multiply(a, b)
    result = activate(result, activation)
    return result if residual is None else result + residual


def _fake(a, b, *_addends, **_options):
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


_library = torch.library.Library("tcgemm_use", "DEF")
_library.define(_SCHEMA, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))
for _key in ("CPU", "CUDA"):
    _aten = Aten("product", 0, _bind)
    _library.impl("product", Kernel(_aten, _key, _by_torch, counts_torchs=False).call, _key)
torch.library.register_fake("tcgemm_use::product", _fake, lib=_library)
product: Callable[..., torch.Tensor] = torch.ops.tcgemm_use.product.default
