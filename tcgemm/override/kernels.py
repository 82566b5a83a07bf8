"""Kernels for torch's own products, registered with the dispatcher while a tcgemm.use is active.

    torch.mm -> Autocast -> Autograd -> CPU or CUDA: the kernels here -> tcgemm, or torch's kernel

Autograd, autocast, torch.func, fake tensors and dispatch modes stand above these keys and stay
torch's, so backward products come here like all others, and other operators are not touched. The
functions above mm that torch decomposes itself (linear, matmul, einsum) need no kernel.
"""

import collections
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tcgemm.ops._torch_private import (
    destroy_library,
    dispatch_keys,
    redispatch,
    runs_as_it_is,
)
from tcgemm.ops.precision import default as default_precision
from tcgemm.override import product as products
from tcgemm.override.choices import BIASED, GENERAL, PLAIN, TORCH, Choices, Entry
from tcgemm.override.product import Product

_aten = torch.ops.aten
_ops = torch.ops.tcgemm
_f32 = torch.float32
_tensor = torch.Tensor


class State:
    """`choices` belong to the tcgemm.use that began last; None if none is active."""

    choices: Choices | None = None


state: State = State()


class Aten(NamedTuple):
    """An aten function: how its arguments are a product, and where its first operand stands."""

    name: str
    bind: Callable[..., Product | str]
    first: int


def _overloads() -> tuple[tuple[Aten, ...], tuple[Aten, ...]]:
    """(the overloads of every device, the overloads that torch has for CUDA alone)"""
    common = (
        Aten("mm", products.bind_mm, 0),
        Aten("bmm", products.bind_bmm, 0),
        Aten("addmm", products.bind_addmm, 1),
        Aten("baddbmm", products.bind_baddbmm, 1),
        Aten("_addmm_activation", products.bind_addmm_activation, 1),
        Aten("_int_mm", products.bind_int_mm, 0),
        Aten("_scaled_mm", products.bind_scaled_mm, 0),
    )
    in_place = tuple(Aten(name, products.bind_in_place, 1) for name in ("addmm_", "baddbmm_"))
    wider = (
        Aten("mm.dtype", products.bind_mm_dtype, 0),
        Aten("bmm.dtype", products.bind_bmm_dtype, 0),
        Aten("addmm.dtype", products.bind_addmm_dtype, 1),
        Aten("baddbmm.dtype", products.bind_baddbmm_dtype, 1),
    )
    names = ("_grouped_mm", "_scaled_grouped_mm", "_scaled_mm_v2")
    # torch may rename these, which only count.
    left = tuple(
        Aten(name, products.left_to_torch(name), 0) for name in names if hasattr(_aten, name)
    )
    into = tuple(overload._replace(name=f"{overload.name}.out") for overload in common)
    return (*common, *into, *in_place), (*wider, *left)


_mm, _bmm = redispatch(_ops.mm.default), redispatch(_ops.bmm.default)
_scaled, _scaled_out = redispatch(_ops.scaled_mm.default), redispatch(_ops.scaled_mm.out)
# The operators of calls without options, which take less host time than scaled_mm.
_QUICK: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mm", "_int_mm", "addmm"), _mm),
    **dict.fromkeys(("bmm", "baddbmm"), _bmm),
}
_ADDED: dict[str, Callable[..., Any]] = {
    "addmm": redispatch(_ops.addmm.default),
    "baddbmm": redispatch(_ops.baddbmm.default),
}


def run(keys: Any, product: Product, out: torch.Tensor | None = None) -> torch.Tensor:
    """The product by tcgemm's kernel of a device, which `keys` says."""
    keywords: dict[str, Any] = {}
    if product.alpha != 1.0:
        keywords["alpha"] = product.alpha
    if product.beta != 1.0:
        keywords["beta"] = product.beta
    if product.activation is not None:
        keywords["activation"] = product.activation
    if product.out_dtype is not None:
        keywords["out_dtype"] = product.out_dtype
    if product.precision not in (None, "highest"):
        keywords["precision"] = product.precision
    tensors = (
        *(product.a, product.b, product.scale_a, product.scale_b),
        *(product.c, product.bias, product.residual),
    )
    if out is None:
        return _scaled(keys, *tensors, **keywords)
    _scaled_out(keys, *tensors, **keywords, out=out)
    return out


def _described(argument: Any) -> Any:
    if isinstance(argument, _tensor):
        return argument.dtype, argument.shape, argument.stride()
    return argument


def _why_not_out(product: Product, out: torch.Tensor) -> str | None:
    """torch resizes an out of another shape, and refuses one of another dtype."""
    a, b = product.a, product.b
    result = torch.int32 if a.dtype is torch.int8 else product.out_dtype or a.dtype
    if out.dtype is not result or out.shape != (*a.shape[:-1], b.shape[-1]):
        return "out has another shape or dtype than the result"
    return None


def _own_sentence(error: RuntimeError) -> str:
    """The reason of an operator that refused its arguments before it computed anything. Other
    errors, such as CUDA's, are the caller's."""
    sentence = str(error).split("\n")[0]
    if not sentence.startswith("tcgemm"):
        raise error
    return sentence


class Kernel:
    """A function's kernel for one dispatch key. `torchs` computes what tcgemm does not take; its
    calls are counted here unless it counts them itself."""

    __slots__ = ("added", "aten", "counts_torchs", "cuda", "function", "keys", "quick", "torchs")
    aten: Aten
    function: str  # without the overload
    keys: Any
    cuda: bool
    torchs: Callable[..., Any]
    counts_torchs: bool
    quick: Any  # the operators of calls without options, or None
    added: Any

    def __init__(
        self, aten: Aten, key: str, torchs: Callable[..., Any], counts_torchs: bool = True
    ) -> None:
        self.aten = aten
        self.function = aten.name.split(".")[0]
        self.keys = dispatch_keys(key)
        self.cuda = key == "CUDA"
        self.torchs = torchs
        self.counts_torchs = counts_torchs
        self.quick = _QUICK.get(aten.name)
        self.added = _ADDED.get(aten.name)

    @runs_as_it_is
    def call(self, *args: Any, **options: Any) -> Any:
        """The kernel of an overload that returns a new tensor."""
        choices = state.choices
        if choices is None:  # another thread has just ended the last tcgemm.use
            return self.torchs(self.keys, *args, **options)
        entry, lookup, precision = self._entry(choices, args, options)
        form = entry.form
        if form != TORCH:
            try:
                if form == GENERAL or self.quick is None or precision is not None:
                    result = run(self.keys, self._product(args, options, precision))
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
            entry = choices.refuse(lookup, product, sentence)
        result = self.torchs(self.keys, *args, **options)
        if self.counts_torchs:
            entry.count.calls += 1
        return result

    @runs_as_it_is
    def call_out(self, *args: Any, out: torch.Tensor, **options: Any) -> torch.Tensor:
        """The kernel of an overload that writes into out."""
        choices = state.choices
        if choices is None:
            return self.torchs(self.keys, *args, **options, out=out)
        entry, _lookup, precision = self._entry(choices, args, options)
        if entry.form != TORCH:
            product = self._product(args, options, precision)
            sentence = _why_not_out(product, out)
            if sentence is None:
                try:
                    run(self.keys, product, out)
                    entry.count.calls += 1
                    return out
                except RuntimeError as error:
                    sentence = _own_sentence(error)
            entry = choices.refuse(None, product, sentence)  # another out may be taken
        self.torchs(self.keys, *args, **options, out=out)
        entry.count.calls += 1
        return out

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
            entry = choices.choose(lookup, self.function, a.dtype, product)
        return entry, lookup, precision

    def _product(self, args: Any, options: Any, precision: str | None) -> Any:
        """The Product of a call, or the reason why there is none."""
        product = self.aten.bind(*args, **options)
        return product if precision is None else _with_precision(product, precision)


def _with_precision(product: Product | str, precision: str) -> Product | str:
    return product if isinstance(product, str) else product._replace(precision=precision)


_libraries: list[Any] = []
# A thread may have looked a kernel up and wait for the GIL while another thread takes the kernel
# back. What was registered stays alive for that long; 64 registrations are about 1 MB.
_recent: collections.deque[list[Any]] = collections.deque(maxlen=64)


def register() -> None:
    """Puts the kernels in the place of torch's."""
    common, cuda_only = _overloads()
    by_key = {"CPU": common}
    if torch.backends.cuda.is_built():
        by_key["CUDA"] = (*common, *cuda_only)
    registered: list[Any] = []
    _recent.append(registered)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for key, overloads in by_key.items():
            library = torch.library.Library("aten", "IMPL", key)
            _libraries.append(library)
            for aten in overloads:
                torchs = torch.library.get_kernel(f"aten::{aten.name}", key).call_boxed
                own = Kernel(aten, key, torchs)
                function = own.call_out if aten.name.endswith(".out") else own.call
                library.impl(aten.name, function, allow_override=True)
                registered.append(torch.library.get_kernel(f"aten::{aten.name}", key))


def unregister() -> None:
    """Puts torch's kernels back."""
    while _libraries:
        destroy_library(_libraries.pop())
