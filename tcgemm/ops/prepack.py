"""Prepacked weights: tcgemm.prepare splits a float32 weight for precision "highest" once.

    w (N, K) --prepare--> Prepared: w itself, and its 16-bit parts as a tensor of bytes
                          linear(x, p)    mm(x, p.t())    matmul(x, p.t())    addmm(c, x, p.t())

A Prepared whose w has changed since is refused. Products with float32 operands and precision
"highest" on a GPU use the parts. All others use w itself: other precisions, autocast, the CPU, and
every backward.
"""

import copy
import operator

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from tcgemm.ops import autograd
from tcgemm.ops._torch_private import is_wrapped_by_transform, mark_static_address
from tcgemm.ops.arguments import wrong_type

_prepare = torch.ops.tcgemm.prepare.default
_BF16 = 1  # the bit of the first byte that means BF16 terms: csrc/core/split_fp32.h


class TensorVersionGuard:
    """Knows whether a tensor is the same as when the guard was created.

    torch counts in-place changes, but not a change of the memory behind a tensor, as by module.to()
    or `w.data = ...`. So the guard compares the address as well, and holds the storage so that no
    other tensor gets the address. Writes through w.data and to inference tensors go unnoticed.
    """

    def __init__(self, tensor):
        self.tensor = tensor
        self.memory = tensor.untyped_storage()
        self.recorded = self._state()

    def _state(self):
        tensor = self.tensor
        version = None if tensor.is_inference() else tensor._version
        return version, tensor.data_ptr(), tensor.stride()

    def __bool__(self):
        return self.recorded == self._state()

    # The getter is a C function: torch.compile guards on its result and does not trace it.
    unchanged = property(operator.truth)


class Prepared:
    """A float32 weight with the parts that precision "highest" multiplies; tcgemm.prepare makes it.

    It replaces the weight in tcgemm.linear, and its .t() in tcgemm.mm, matmul and addmm, and in
    explain and check_layout. Copies (copy.deepcopy, pickle, torch.save) hold a copy of the weight
    and are prepared anew where they land; `to` does the same.

    Attributes:
        weight (Tensor): what was prepared, (N, K); the same object, so it gets its gradients.
        parts (str): "f16" or "bf16", as the values require; None where there are no parts.
        nbytes (int): the size of the parts: about that of the weight for f16, 1.5 times for bf16.
        shape, dtype, device: those of the operand that it replaces.
        fresh (bool): False when the weight has changed since, and prepare is to be called again.
    """

    def __init__(self, weight, packed, parts, guard, transposed=False):
        self.weight = weight
        self.packed = packed
        self.parts = parts
        self.guard = guard
        self.transposed = transposed

    def t(self):
        """The transpose, (K, N), with the same parts."""
        return Prepared(self.weight, self.packed, self.parts, self.guard, not self.transposed)

    @property
    def T(self):
        return self.t()

    @property
    def mT(self):
        return self.t()

    @property
    def shape(self):
        return torch.Size(reversed(self.weight.shape)) if self.transposed else self.weight.shape

    @property
    def dtype(self):
        return self.weight.dtype

    @property
    def device(self):
        return self.weight.device

    @property
    def nbytes(self):
        return self.packed.nbytes

    @property
    def fresh(self):
        return self.guard.unchanged

    def to(self, device):
        """The weight on another device, prepared there; this object if it is there already."""
        weight = self.weight.to(device)
        return self if weight is self.weight else restored(weight, self.transposed)

    def operand(self, function, name, transposed):
        """(the weight as this operand, its parts), if it has the expected orientation."""
        if self.transposed is not transposed:
            raise RuntimeError(
                f"tcgemm.{function}: {name} is a Prepared of shape {tuple(self.shape)}, whose "
                f"parts are for products with its transpose; pass {name}.t(), or the .t() of what "
                f"tcgemm.prepare makes of the transposed weight."
            )
        if not self.guard.unchanged:
            raise RuntimeError(
                f"tcgemm.{function}: {name} is a Prepared whose weight was changed in place, moved "
                "or exchanged since it was prepared, so its parts are those of another weight; "
                "call tcgemm.prepare again."
            )
        return (self.weight.t() if transposed else self.weight), self.packed

    def __repr__(self):
        return (
            f"Prepared(shape={tuple(self.shape)}, device='{self.device}', parts={self.parts}, "
            f"nbytes={self.nbytes})"
        )

    def __deepcopy__(self, memo):
        return restored(copy.deepcopy(self.weight, memo), self.transposed)

    def __reduce__(self):
        return restored, (self.weight, self.transposed)


def restored(weight, transposed):
    prepared = prepare(weight)
    return prepared.t() if transposed else prepared


def prepare(w):
    """Splits a weight once into the parts that products with precision "highest" multiply.

    On a GPU such a product splits both operands into 16-bit parts before it multiplies them
    (tcgemm.explain shows it). For a weight that serves many calls the parts can be kept, and each
    call splits only the activations. The result has the same bits, if the product multiplies parts
    with and without a Prepared: small products without one may be cheaper in float64, and
    precision="prepared" makes a product without parts choose as one with them. Short K, the CPU,
    other precisions and autocast multiply w itself, and so do gradients, which need other parts.

    Arguments:
        w (Tensor): (N, K) of float32, as the weight of tcgemm.linear; any strides. For a weight
            that is stored as (K, N), prepare its transpose and use .t() of the result.

    Returns a tcgemm.Prepared, for tcgemm.linear(x, p), tcgemm.mm(x, p.t()), matmul, addmm, explain
    and check_layout, with all that they take besides, with gradients and in torch.compile. It keeps
    w and, on a GPU, beside it as many bytes again (f16 parts) or 1.5 times as many (bf16 parts,
    where rows span more than about 2**28); while it is made, up to 2.5 times. tcgemm.nn.Linear in
    eval mode does all this by itself.

    The call waits for the GPU once. Products with a Prepared do not, and CUDA graphs hold them; a
    graph that was captured goes on with the parts of then. When w has changed since, by an in-place
    operation or another memory behind it, a Prepared is refused; what is written through w.data, or
    to an inference tensor, is not noticed.

    Raises:
        TypeError: w is no tensor.
        RuntimeError: w is no matrix or not float32; the GPU has no kernel for float32 products
            (compute capability 9.0 has); memory is short; the call stands inside torch.compile,
            torch.func or the capture of a CUDA graph. The sentence says what to do.

    Example:
        >>> w = torch.randn(48, 32)
        >>> p = tcgemm.prepare(w)
        >>> x = torch.randn(10, 32)
        >>> torch.equal(tcgemm.linear(x, p), tcgemm.linear(x, w))
        True
        >>> tcgemm.mm(x, p.t()).shape, p.shape
        (torch.Size([10, 48]), torch.Size([48, 32]))
    """
    if has_torch_function_unary(w):
        return handle_torch_function(prepare, (w,), w)
    if not isinstance(w, torch.Tensor):
        raise wrong_type("prepare", "w", w)
    _refuse_inside(w)
    with torch.inference_mode(False):
        packed = autograd.without_grad(_prepare, w)
    parts = None
    if packed.numel() > 0:
        # The read waits for the GPU, so no other stream has to wait for the parts later.
        parts = "bf16" if int(packed[0]) & _BF16 else "f16"
        mark_static_address(packed)  # graphs of torch.compile do not copy it
    return Prepared(w, packed, parts, TensorVersionGuard(w))


def capturing(tensor):
    """Are operations on the tensor captured in a CUDA graph now?"""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _refuse_inside(w):
    """prepare reads from the GPU, and its result outlives the call, so some callers are refused."""
    place = None
    if torch.compiler.is_compiling():
        place = "a function that is compiled"
    elif is_wrapped_by_transform(w):
        place = "a function that torch.func transforms"
    elif capturing(w):
        place = "the capture of a CUDA graph"
    if place is not None:
        raise RuntimeError(
            f"tcgemm.prepare: w cannot be prepared inside {place}; prepare it before, and use the "
            "Prepared inside."
        )
