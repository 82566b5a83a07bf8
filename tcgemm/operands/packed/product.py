"""Products with a PackedWeight: the operators packed_mm and packed_mm_amax with their fakes,
derivatives and rules.

    linear, mm, matmul, addmm --> dispatch.gemm --> _multiply --> autograd --> packed_mm

The operator takes the weight in device order, and K from its other operand. The gradient of a
multiplies the weight that these bytes stand for, in the dtype of a. So a graph needs no other form
of the weight.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from tcgemm.operands.packed.arrange import Order, parts_of
from tcgemm.operands.packed.codes import dequantized
from tcgemm.operands.packed.weight import PackedWeight
from tcgemm.ops import autograd, calls, dispatch, dtensor, fake, flops, invariance, vmap
from tcgemm.ops._torch_private import any_autocast_enabled
from tcgemm.ops.arguments import check_amax, check_words, refusal
from tcgemm.ops.direct import DENSE
from tcgemm.ops.dispatch import USUAL
from tcgemm.ops.epilogue import DEFAULT, NO_SCALES, TENSORS, Epilogue, Scales
from tcgemm.ops.kept import NOTHING
from tcgemm.ops.operands import products
from tcgemm.ops.operators import LINEAR, MATMUL, Operands, Operator, Tensors, times

_SIXTEEN = (torch.float16, torch.bfloat16)
_OPERATORS: dict[bool, Operator] = {  # the key is the argument amax
    False: Operator("packed_mm"),
    True: Operator("packed_mm_amax"),
}
_NO_ORDER = Order(0, "int4", 0, "none")


class PackedProduct(Operator):
    """packed_mm or packed_mm_amax for one call: the numbers of the weight and scale_out belong to
    it."""

    weight: bool = True
    batched: bool = False
    operand_names: tuple[str, str] = ("a", "packed_b")
    positional: tuple[str, ...] = (*TENSORS, "scale_out")
    plain_kernel: Any
    keeps_sign: bool
    constants: tuple[Tensor | None, ...]
    constant_names: tuple[str, ...]
    order: Order
    constant: bool  # no kernel that may still run writes the weight
    words: dict[str, Any]  # the numbers of the weight, as keywords
    a: tuple[int, torch.dtype]  # K and the dtype of the other operand

    def __init__(
        self,
        order: Order = _NO_ORDER,
        scale_out: Tensor | None = None,
        kernel_name: str | None = None,
        a: tuple[int, torch.dtype] = (0, torch.bfloat16),
        *,
        amax: bool = False,
        constant: bool = False,
    ) -> None:
        self.take_overloads(_OPERATORS[amax])
        self.amax = amax
        self.order = order
        self.constant = constant
        self.words = order._asdict() | ({"constant_b": True} if constant else {})
        if scale_out is not None or amax:  # else autograd.py takes the shortest way
            self.constants, self.constant_names = (scale_out,), ("scale_out",)
            self.plain_kernel = None
        else:
            self.plain_kernel = functools.partial(self.kernel, **self.words)
        self.keeps_sign = scale_out is None
        self.kernel_name = kernel_name
        self.a = a

    def tensors(self, a: Any, b: Any, c: Any, bias: Any, residual: Any) -> Tensors:
        return a, b, c, bias, residual, *self.constants

    def keywords(self, epilogue: Epilogue) -> dict[str, Any]:
        keywords = self.words | epilogue.keywords()
        for word in ("acc_dtype", "precision"):  # they choose nothing here
            keywords.pop(word, None)
        if self.kernel_name is not None:
            keywords["kernel_name"] = self.kernel_name
        return keywords

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[PackedProduct, Operands]:
        arguments = self.arguments(args, kwargs)
        order = Order(*(arguments.get(name, empty) for name, empty in _NO_ORDER._asdict().items()))
        a = arguments["a"]
        form = (a.shape[-1], a.dtype) if isinstance(a, torch.Tensor) and a.dim() else self.a
        call = PackedProduct(
            order,
            arguments.get("scale_out"),
            arguments.get("kernel_name"),
            form,
            amax=self.amax,
            constant=bool(arguments.get("constant_b")),
        )
        return call, self.operands(arguments)

    def before_activation(self) -> PackedProduct:
        return PackedProduct(self.order, None, self.kernel_name, self.a, constant=self.constant)

    def grad_operands(
        self, a: Any, b: Any, precision: str | None
    ) -> tuple[Tensor | None, Tensor | None, None]:
        """a, and the weight (N, K) in its dtype."""
        if b is not None:
            k, dtype = self.a
            b = dequantized(*parts_of(b, self.order, k), dtype)
        return a, b, None

    def apply_scale_out(self, gradient: Tensor) -> Tensor:
        return times(gradient, self.constants[0]) if self.constants else gradient

    def lift(self, result: Tensor, a_dims: int, b_dims: int) -> Tensor:
        return super().lift(result, a_dims, 2)

    def lower(self, result: Tensor, a_dims: int, b_dims: int) -> Tensor:
        return super().lower(result, a_dims, 2)


OPERATOR: PackedProduct = PackedProduct()
OPERATOR_AMAX: PackedProduct = PackedProduct(amax=True)
for _op in (OPERATOR, OPERATOR_AMAX):
    fake.register(_op, lambda _op, arguments: (*arguments["a"].shape[:-1], arguments["n"]), False)
    autograd.register(_op)
    flops.count(_op)
torch.library.register_vmap("tcgemm::packed_mm", vmap.joined_rows(OPERATOR.default))
vmap.register_one_by_one("packed_mm_amax")
vmap.register_one_by_one("packed_mm", "with_z")
autograd.register_constant("packed_mm", "with_z")
dtensor.rules_in("tcgemm.operands.packed.sharding")


def _refuse(op: Operator, text: str) -> NoReturn:
    raise RuntimeError(f"tcgemm.{op.name}: {text}")


def _check_options(op: Operator, epilogue: Epilogue, scales: Scales, amax: object) -> None:
    """Raises the error for what no product with a packed weight has."""
    check_words(op.name, epilogue)
    check_amax(op.name, amax)
    second = op.operand_names[1]
    for name, scale in zip(Scales._fields[:-1], scales, strict=False):
        if scale is not None:
            _refuse(
                op,
                f"{name} is given, but {second} is a PackedWeight, which has its own scales; leave "
                f"it out, or pass {second}.dequantize().",
            )
    if epilogue.acc_dtype not in (None, torch.float32):
        _refuse(
            op,
            f"acc_dtype is {epilogue.acc_dtype}, but products with a PackedWeight are summed in "
            "torch.float32; leave it out.",
        )


def _check_operands(op: Operator, a: Tensor, b: PackedWeight, bias: Tensor | None) -> None:
    """Raises the error for operands that do not fit each other or the function."""
    first, second = op.operand_names
    if b.transposed is op.weight:
        _refuse(
            op,
            f"{second} is a PackedWeight of shape {tuple(b.shape)}, but the {op.name} function "
            f"takes it {'as it was packed' if op.weight else 'as its transpose'}; pass "
            f"{second}.t().",
        )
    if a.dtype not in _SIXTEEN:
        _refuse(
            op,
            f"{first} is {a.dtype}, but a PackedWeight is multiplied by torch.float16 or "
            f"torch.bfloat16; convert {first} with .to(torch.bfloat16), or pass "
            f"{second}.dequantize({a.dtype}).",
        )
    n, k = b.stored.layout.n, b.stored.layout.k
    dims = (2,) if op not in (LINEAR, MATMUL) else range(1, 65)
    if a.dim() not in dims or a.shape[-1] != k:
        rows = "(M," if dims == (2,) else "(...,"
        _refuse(
            op,
            f"{first} has shape {tuple(a.shape)}, but {second} is a PackedWeight of K = {k}, so "
            f"{first} must have shape {rows} {k}); reshape it.",
        )
    if bias is not None and (bias.dim() > 2 or (op is LINEAR and bias.dim() != 1)):
        shapes = f"({n},)" if op is LINEAR else f"({n},), (1, {n}) or (M, 1)"
        _refuse(
            op,
            f"bias must have shape {shapes}, but has {tuple(bias.shape)}; pass anything that "
            "varies along other dimensions as residual.",
        )


def _multiply(function, op, a, b, c, bias, residual, out, epilogue, scales, amax):
    """The product `op` of a tensor and a PackedWeight, and amax if it is asked for. The arguments
    are as in dispatch."""
    if type(b) is not PackedWeight or has_torch_function((a, c, bias, residual, out, *scales)):
        return NotImplemented
    first, second = op.operand_names
    if op.batched:
        _refuse(
            op,
            f"{second} is a PackedWeight, which is one matrix, but {op.name} multiplies batches; "
            f"call tcgemm.matmul with it, or pass batches of {second}.dequantize().",
        )
    if not (epilogue is DEFAULT and scales is NO_SCALES and amax is False):
        _check_options(op, epilogue, scales, amax)
    stored, scale_out = b.stored, scales.scale_out
    kinds = {type(c), type(bias), type(residual), type(out), type(scale_out)}
    if not (type(a) in DENSE and kinds <= USUAL and not op.adds_c):
        addends = {"c": c, "bias": bias, "residual": residual, "out": out, "scale_out": scale_out}
        if not dispatch.all_tensors(op, a, stored.tensors.scales, *addends.values()):
            raise dispatch.no_tensor(op.name, {first: a, second: stored.tensors.scales, **addends})
    traced = torch.compiler.is_compiling()
    if out is None and (traced or any_autocast_enabled()):
        a, c, bias, residual = dispatch.autocast(a, c, bias, residual)
    _check_operands(op, a, b, bias)
    if amax and out is not None:
        raise dispatch.amax_with_out(op.name)
    kept = stored.form
    with kept.lock if a.is_cuda and not traced else NOTHING:
        order, form = stored.arranged(), (a.shape[-1], a.dtype)
        # Nothing writes a settled order: a kernel loads it while the kernel before still runs.
        constant = not traced and kept.settled and kept.guards != ()
        call = None if traced else stored.calls.get((a.dtype, constant))
        if call is None or scale_out is not None or amax:
            call = PackedProduct(b.order, scale_out, None, form, amax=bool(amax), constant=constant)
            if not (traced or call.constant_names):
                stored.calls[a.dtype, constant] = call
        operands = (a, order, c, bias, residual)
        try:
            if out is not None:
                return dispatch.into(op, call, out, out, *operands, epilogue)
            if traced:
                return call.run(*operands, invariance.kept(epilogue))
            if call.constant_names:
                return calls.call_checked(call, *operands, epilogue)
            return calls.call(call, *operands, epilogue)
        except RuntimeError as error:
            tensors = {first: a, second: order, "c": c, "bias": bias, "residual": residual}
            tensors |= {"scale_out": scale_out, "out": out}
            if any(map(dtensor.is_dtensor, tensors.values())):
                _refuse(
                    op,
                    f"a tensor is a DTensor, but {second} is a PackedWeight, which is none; pass "
                    "to_local() of a DTensor that is sharded by rows, or full_tensor().",
                )
            fake.check_devices(f"tcgemm.{op.name}", tensors)
            refused = refusal(op.name, error, epilogue)
            if traced or refused is None:
                raise
            raise refused from None


products[PackedWeight] = _multiply
