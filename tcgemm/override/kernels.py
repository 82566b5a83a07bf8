"""Kernels for torch's own products, registered with the dispatcher while a tcgemm.use is active.

    torch.mm -> Autocast -> Autograd -> CPU or CUDA: the kernels here -> tcgemm, or torch's kernel

Autograd, autocast, torch.func, fake tensors and dispatch modes stand above these keys and stay
torch's, so backward products come here like all others, and other operators are not touched. The
functions above mm that torch decomposes itself (linear, matmul, einsum) need no kernel.
"""

import collections
import warnings
from collections.abc import Callable
from typing import Any

import torch

from tcgemm.ops._torch_private import (
    destroy_library,
    dispatch_keys,
    has_kernel,
    redispatch,
    runs_as_it_is,
)
from tcgemm.ops.epilogue import DEFAULT
from tcgemm.ops.grouped import OPERATOR as GROUPED
from tcgemm.ops.memory import raise_typed
from tcgemm.ops.operators import SCALED
from tcgemm.ops.precision import default as default_precision
from tcgemm.override.choices import BIASED, GENERAL, PLAIN, TORCH, Choices, Entry
from tcgemm.override.product import TABLE, Aten, Product

_OTHER_OUT = "out has another shape or dtype than the result"
_f32 = torch.float32
_tensor = torch.Tensor
_scaled_out = redispatch(SCALED.out)
_grouped_out = redispatch(GROUPED.out)


class State:
    """`choices` belong to the tcgemm.use that began last; None if none is active."""

    choices: Choices | None = None


state: State = State()


def run(keys: Any, product: Product, out: torch.Tensor | None) -> torch.Tensor:
    """The product by tcgemm's kernel of a device, which `keys` says."""
    function, a, b, c, bias, residual, epilogue, scale_a, scale_b, _blocks, offs = product
    keywords = {} if epilogue is DEFAULT else epilogue.keywords()
    if function == "_grouped_mm":
        return _grouped(keys, a, b, offs, keywords)
    tensors = (a, b, scale_a, scale_b, c, bias, residual)
    if out is None:
        return SCALED.kernel(keys, *tensors, **keywords)
    # torch resizes an out of another shape, and refuses one of another dtype.
    dtype = torch.int32 if a.dtype is torch.int8 else epilogue.out_dtype or a.dtype
    if out.dtype is not dtype or out.shape != (*a.shape[:-1], b.shape[-1]):
        raise RuntimeError(_OTHER_OUT)
    _scaled_out(keys, *tensors, **keywords, out=out)
    return out


def _grouped(keys, a, b, offs, keywords):
    """A grouped product. The result of torch's has lines of whole 16 bytes."""
    m, n, vector = a.shape[-2], b.shape[-1], 16 // a.element_size()
    if n % vector == 0:
        return GROUPED.kernel(keys, a, b, offs, **keywords)
    groups = () if a.dim() != b.dim() else b.shape[:1] if offs is None else offs.shape
    out = a.new_empty((*groups, m, n + -n % vector))[..., :n]
    _grouped_out(keys, a, b, offs, **keywords, out=out)
    return out


def _described(argument: Any) -> Any:
    if isinstance(argument, _tensor):
        return argument.dtype, argument.shape, argument.stride()
    if isinstance(argument, list | tuple):
        return tuple(map(_described, argument))
    return argument


def _own_sentence(error: RuntimeError) -> str:
    """The reason of an operator that refused its arguments before it computed anything. Other
    errors, such as CUDA's, are the caller's."""
    sentence = str(error).split("\n")[0]
    if not sentence.startswith(("tcgemm", _OTHER_OUT)):
        raise_typed(error)
    return sentence


class Kernel:
    """A function's kernel for one dispatch key. `torchs` computes what tcgemm does not take; its
    calls are counted here unless it counts them itself."""

    __slots__ = ("added", "aten", "counts_torchs", "cuda", "keys", "quick", "torchs")
    aten: Aten
    keys: Any
    cuda: bool
    torchs: Callable[..., Any]
    counts_torchs: bool
    quick: Any  # the kernels of aten.product and aten.sum, or None
    added: Any

    def __init__(
        self, aten: Aten, key: str, torchs: Callable[..., Any], counts_torchs: bool = True
    ) -> None:
        self.aten = aten
        self.keys = dispatch_keys(key)
        self.cuda = key == "CUDA"
        self.torchs = torchs
        self.counts_torchs = counts_torchs
        self.quick = aten.product and aten.product.kernel
        self.added = aten.sum and aten.sum.kernel

    @runs_as_it_is
    def call(self, *args: Any, out: torch.Tensor | None = None, **options: Any) -> Any:
        """The result of a call."""
        choices = state.choices
        if choices is None:  # another thread has just ended the last tcgemm.use
            return self._by_torch(args, options, out)
        entry, lookup, precision = self._entry(choices, args, options)
        form = entry.form
        if form != TORCH:
            try:
                if form == GENERAL or self.quick is None:
                    result = run(self.keys, self._product(args, options, precision), out)
                elif form == PLAIN:
                    result = self.quick(self.keys, *args)
                elif form == BIASED:
                    result = self.quick(self.keys, args[1], args[2], args[0])
                else:
                    beta, alpha = float(options.get("beta", 1)), float(options.get("alpha", 1))
                    result = self.added(self.keys, *args, beta=beta, alpha=alpha)
                entry.count.calls += 1
                return result
            except RuntimeError as error:
                sentence = _own_sentence(error)
            product = self._product(args, options, precision)
            # Another out may be taken, and so may other values of offs, which a CPU refuses.
            is_final = out is None and (self.cuda or product.offs is None)
            entry = choices.decide(lookup if is_final else None, product, sentence)
        result = self._by_torch(args, options, out)
        if self.counts_torchs:
            entry.count.calls += 1
        return result

    def _by_torch(self, args: Any, options: Any, out: torch.Tensor | None) -> Any:
        if out is not None:
            options["out"] = out
        return self.torchs(self.keys, *args, **options)

    def _entry(self, choices: Choices, args: Any, options: Any) -> tuple[Entry, Any, str | None]:
        """(the choice, its key, the precision where not all bits are multiplied)"""
        a = args[self.aten.first]
        precision = device = None
        if self.cuda:
            device = a.get_device()
            if a.dtype is _f32:
                chosen = default_precision()
                precision = None if chosen == "highest" else chosen
        lookup = (self.aten.name, device, precision, *map(_described, args), *options.items())
        entry = choices.entries.get(lookup)
        if entry is None:
            product = self._product(args, options, precision)
            function = self.aten.name.split(".")[0]
            entry = choices.choose(lookup, function, a.dtype, product)
        return entry, lookup, precision

    def _product(self, args: Any, options: Any, precision: str | None) -> Any:
        """The Product of a call, or the reason why there is none."""
        product = self.aten.bind(*args, **options)
        if precision is None or isinstance(product, str):
            return product
        return product._replace(epilogue=product.epilogue.with_precision(precision))


_libraries: list[Any] = []
# A thread may have looked a kernel up and wait for the GIL while another thread takes the kernel
# back. What was registered stays alive for that long; 64 registrations are about 1 MB.
_recent: collections.deque[list[Any]] = collections.deque(maxlen=64)


def register() -> None:
    """Puts the kernels in the place of torch's. Where torch has none, it keeps its error."""
    keys = ("CPU", "CUDA") if torch.backends.cuda.is_built() else ("CPU",)
    registered: list[Any] = []
    _recent.append(registered)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for key in keys:
            library = torch.library.Library("aten", "IMPL", key)
            _libraries.append(library)
            for aten in TABLE:
                if not has_kernel(f"aten::{aten.name}", key):
                    continue
                torchs = torch.library.get_kernel(f"aten::{aten.name}", key).call_boxed
                library.impl(aten.name, Kernel(aten, key, torchs).call, allow_override=True)
                registered.append(torch.library.get_kernel(f"aten::{aten.name}", key))


def unregister() -> None:
    """Puts torch's kernels back."""
    while _libraries:
        destroy_library(_libraries.pop())
