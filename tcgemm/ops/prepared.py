"""Prepared weights: tcgemm.prepare splits a float32 weight for precision "highest" once.

    w (N, K) --prepare--> Prepared: w itself, and its 16-bit terms as a tensor of bytes
                          linear(x, p)    mm(x, p.t())    matmul(x, p.t())    addmm(c, x, p.t())

A Prepared whose w has changed since is refused. Products with float32 operands and precision
"highest" on a GPU use the terms. All others use w itself: other precisions, autocast, the CPU, and
every backward.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.overrides import (
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
)

from tcgemm.ops import calls, dispatch
from tcgemm.ops._torch_private import is_wrapped_by_transform
from tcgemm.ops.arguments import wrong_type
from tcgemm.ops.epilogue import Epilogue
from tcgemm.ops.kept import NOTHING, KeptForm, capturing
from tcgemm.ops.operands import Operand, products

_prepare = torch.ops.tcgemm.prepare.default
_BF16 = 1  # the bit of the first byte that means BF16 terms: csrc/core/split_fp32.h


class Prepared(Operand):
    """A float32 weight together with the 16-bit terms of its elements; tcgemm.prepare makes it.

    Example:
        >>> x, w = torch.randn(10, 32), torch.randn(48, 32)
        >>> p = tcgemm.prepare(w)
        >>> tcgemm.linear(x, p).shape, tcgemm.mm(x, p.t()).shape
        (torch.Size([10, 48]), torch.Size([10, 48]))

    A Prepared takes the place of the weight in tcgemm.linear. Its .t() takes the place of b in
    tcgemm.mm, matmul, addmm, explain and check_layout.

    A copy of a Prepared (copy.deepcopy, pickle, torch.save) holds a copy of the weight, which is
    prepared again when the copy is made or loaded.

    Attributes:
        weight (Tensor): the weight (N, K) itself, not a copy: gradients arrive in weight.grad.
        terms (Tensor): the bytes of the terms; empty where there are none, as on the CPU.
        term_type (str): "f16" or "bf16"; the values of the weight decide. None without terms.
        nbytes (int): the size of the terms in bytes: about as much as the weight for f16, and 1.5
            times that for bf16.
        shape (torch.Size): the shape of the operand whose place it takes.
        dtype (torch.dtype): float32.
        device (torch.device): where the weight and its terms are.
        fresh (bool): False once the weight has changed; then call prepare again.
    """

    weight: torch.Tensor
    term_type: Literal["f16", "bf16"] | None
    form: KeptForm  # the terms, and of a layer a copy of the weight
    transposed: bool

    def __init__(
        self,
        weight: torch.Tensor,
        form: KeptForm,
        term_type: Literal["f16", "bf16"] | None,
        transposed: bool = False,
    ):
        self.weight = weight
        self.form = form
        self.term_type = term_type
        self.transposed = transposed

    def t(self) -> Prepared:
        """The transpose (K, N). It shares the weight and the terms."""
        return Prepared(self.weight, self.form, self.term_type, not self.transposed)

    @property
    def terms(self) -> torch.Tensor:
        """The bytes of the terms."""
        return self.form.tensors[0]

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight: (N, K), or (K, N) of the transpose."""
        return torch.Size(reversed(self.weight.shape)) if self.transposed else self.weight.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weight, float32."""
        return self.weight.dtype

    @property
    def device(self) -> torch.device:
        """The device of the weight and of its terms."""
        return self.weight.device

    @property
    def nbytes(self) -> int:
        """The size of the terms in bytes."""
        return self.terms.nbytes

    @property
    def fresh(self) -> bool:
        """Is the weight the same as when it was prepared?"""
        return self.form.unchanged

    def to(self, device: torch.device | str | int) -> Prepared:
        """Moves the weight to another device and prepares it there.

        Returns this object if the weight is there already.
        """
        weight = self.weight.to(device)
        return self if weight is self.weight else restored(weight, self.transposed)

    mend = "its weight, {}.weight"

    def described(
        self, name: str, a: torch.Tensor, epilogue: Epilogue
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        weight, terms = self.operand(name, "b", True)
        return weight, {"terms_b": dispatch.fitting(terms, a, weight, epilogue.precision)}

    def operand(
        self, function: str, name: str, transposed: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(the weight as this operand, its terms), if it has the expected orientation."""
        if self.transposed is not transposed:
            raise RuntimeError(
                f"tcgemm.{function}: {name} is a Prepared of shape {tuple(self.shape)}, whose "
                f"terms are for products with its transpose; pass {name}.t(), or the .t() of what "
                f"tcgemm.prepare makes of the transposed weight."
            )
        if not self.form.unchanged:
            raise RuntimeError(
                f"tcgemm.{function}: {name} is a Prepared whose weight was changed in place, moved "
                "or exchanged since it was prepared, so its terms belong to another weight; "
                "call tcgemm.prepare again."
            )
        weight, (terms, *copies) = self.weight, self.form.tensors
        if copies and not (torch.is_grad_enabled() and weight.requires_grad):
            weight = copies[0]
        return (weight.t() if transposed else weight), terms

    def __repr__(self) -> str:
        return (
            f"Prepared(shape={tuple(self.shape)}, device='{self.device}', "
            f"term_type={self.term_type}, nbytes={self.nbytes})"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Prepared:
        return restored(copy.deepcopy(self.weight, memo), self.transposed)

    def __reduce__(self) -> tuple[Callable[..., Prepared], tuple[torch.Tensor, bool]]:
        return restored, (self.weight, self.transposed)


def _multiply(function, op, a, b, c, bias, residual, out, epilogue, scales, amax):
    """The product of a Prepared b, which has its terms where the precision takes them."""
    tensors = (a, c, bias, residual, out, *scales)
    if op.batched or type(b) is not Prepared or has_torch_function(tensors):
        return NotImplemented
    on_gpu = b.weight.is_cuda and not torch.compiler.is_compiling()
    with b.form.lock if on_gpu else NOTHING:
        weight, terms = b.operand(op.name, op.operand_names[1], not op.weight)
        operands = (a, weight, c, bias, residual, out)
        return dispatch.scaled_gemm(op, *operands, epilogue, scales, amax, terms)


products[Prepared] = _multiply


def restored(weight: torch.Tensor, transposed: bool) -> Prepared:
    """The Prepared that a saved file stands for: the weight is prepared again.

    Files may be damaged or forged, so both arguments are checked.
    """
    if not isinstance(transposed, bool):
        raise RuntimeError(
            f"tcgemm.Prepared: the saved object is damaged: transposed is {transposed!r}, but it "
            "must be True or False; load another copy of the file."
        )
    prepared = prepare(weight)
    return prepared.t() if transposed else prepared


def prepare(w: torch.Tensor) -> Prepared:
    """Splits a float32 weight once, for many products with precision "highest" on a GPU.

    Example:
        >>> w = torch.randn(48, 32)
        >>> p = tcgemm.prepare(w)
        >>> x = torch.randn(10, 32)
        >>> torch.equal(tcgemm.linear(x, p), tcgemm.linear(x, w))
        True
        >>> tcgemm.mm(x, p.t()).shape, p.shape
        (torch.Size([10, 48]), torch.Size([48, 32]))

    On a GPU, a product of float32 operands with precision "highest" first splits both operands
    into 16-bit terms (tcgemm.explain shows this). With a Prepared, each call splits only the
    activations. tcgemm.nn.Linear prepares its weight by itself in eval mode.

    Arguments:
        w (Tensor): (N, K) of float32, as the weight of tcgemm.linear; any strides. If yours is
            stored as (K, N), prepare its transpose and use .t() of the result.

    Returns:
        A tcgemm.Prepared. Pass it as the weight of tcgemm.linear, and its .t() as b of mm, matmul,
        addmm, explain and check_layout. Their other arguments, gradients and torch.compile work
        as before.

    The terms serve products of float32 operands with precision "highest" on a GPU, unless K is
    short. All other products multiply w itself, and so do the gradients.

    The result has the same bits as without prepare if both products multiply terms of 16 bits. A
    product of few rows, or a small one, may run in another way without prepare, because that is
    faster. Pass precision="prepared" to it if it must have the bits of a product with a Prepared.

    On a GPU the terms take as many bytes as w (f16), or 1.5 times as many (bf16, if the largest
    magnitude of a row is more than about 2**28 times the smallest). While prepare runs, it takes up
    to 2.5 times as many. It waits for the GPU once; products with a Prepared do not wait. A CUDA
    graph may contain such products, and keeps the terms that it was captured with.

    If w changes in place, or gets other memory, the next product refuses the Prepared. A write
    through w.data, or to an inference tensor, is not noticed.

    Raises:
        TypeError: w is no tensor.
        RuntimeError: w is no matrix, or not float32; the GPU has no kernel for float32 products
            (it needs compute capability 9.0); there is not enough memory; or the call stands inside
            torch.compile, torch.func or the capture of a CUDA graph. The message says what to do.
    """
    if has_torch_function_unary(w):
        return handle_torch_function(prepare, (w,), w)
    if not isinstance(w, torch.Tensor):
        raise wrong_type("prepare", "w", w)
    _refuse_inside(w)
    if w.layout is not torch.strided:
        calls.without_grad(_prepare, w)  # raises: a kept form cannot ask for the address
    return prepared_in(KeptForm(), w)


def prepared_in(form: KeptForm, w: torch.Tensor, *, copies: bool = False) -> Prepared:
    """The weight with terms that are written into the form, at its address if they fit.

    copies: the form has a copy of the weight beside the terms, for products that read both: few
    rows are multiplied in float64, and where values lie far apart, elements are computed again.
    """

    def make() -> tuple[torch.Tensor, ...]:
        terms = calls.without_grad(_prepare, w)
        return (terms, w.detach().clone()) if copies and terms.numel() > 0 else (terms,)

    terms, *_ = form.write([w], make)
    term_type = None
    if terms.numel() > 0:
        term_type = "bf16" if int(terms[0]) & _BF16 else "f16"
    return Prepared(w, form, term_type)


def _refuse_inside(w: torch.Tensor) -> None:
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
