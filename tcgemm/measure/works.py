"""The cases that are no plain GEMM, made runnable, and the runnable form of each case.

packed weights      16-bit activations, beside torch's product with the weight that was packed
int4 and bits       beside torch._int_mm of the same integers in int8, because torch has no such
                    products; it gives the same int32 sums and reads two or eight times the
                    bytes. For "xor" and "pm1" of bits the integers are -1 and 1.
train               y = act(x w^T + bias), dx, dw and dbias, beside torch.nn.Linear with the
                    same parameters and torch's activation
compress            compress24(prune), beside torch._cslt_compress of a pruned weight
prune               prune24(transposable), beside a greedy choice that torch compresses in both
                    directions
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import tcgemm
from tcgemm.measure import Plan, baseline, errors, operands, plan
from tcgemm.measure.case import PASSES, SUBBYTE, Case
from tcgemm.measure.operands import Operands
from tcgemm.measure.timing import Call, Timing
from tcgemm.measure.work import TORCH, Checks
from tcgemm.measure.workloads import BUDGET, Workload
from tcgemm.operands.packed import PackedWeight
from tcgemm.operands.packed.formats import FORMATS
from tcgemm.operands.sparse.parts import GROUPS, default_pattern
from tcgemm.ops.activations import activate
from tcgemm.typing import Activation, BinaryOperation, SparsePattern, words

_OPS = torch.ops.tcgemm
TORCH_INT4, INT8 = "torch int4", "tcgemm int8"
# Kernels round an element of the weight, its scale and a table to 16 bits at most three times.
ROUNDINGS = 3
# Relative Frobenius norm of the difference of two gradients: each rounds the gradient before the
# activation to 16 bits, by up to 0.4 % an element.
DISTANCE = 0.02
BLOCK = 4  # transposable pruning works on blocks of 4 x 4
CHUNK = 1 << 18  # blocks that are checked at a time


class PackedWeightWorkload(Workload):
    """The operand sets and the calls of a product with a packed weight."""

    format: Any  # of the weight
    group: int | None  # elements along K that share a scale; None: a whole row
    packed: list[PackedWeight]  # of each set
    weights: Any
    b: Sequence[Any]

    def __init__(self, case: Case, device: torch.device | str) -> None:
        assert case.packed is not None
        self.format, self.group = case.packed
        super().__init__(case, device)

    def _stored_bits(self) -> tuple[int, int]:
        return 8 * self.dtype.itemsize, FORMATS[self.format].bits

    def refill(self, largest: int | None = None) -> Operands:
        """Fills all operands with new data, and packs the weights again."""
        pools = super().refill(largest)
        self.packed = [tcgemm.pack_weight(b.mT, self.format, self.group) for b in pools.b]
        for weight in self.packed:
            weight.arranged()
        self.weights, self.b = self.packed, [weight.t() for weight in self.packed]
        return pools

    def candidates(self) -> dict[str, Call]:
        calls = super().candidates()
        fits = (self.format, self.group) == ("int4", baseline.Int4Gemm.group)
        if fits and self.case.m <= baseline.Int4Gemm.most_rows and self.device.type == "cuda":
            calls[TORCH_INT4] = baseline.Int4Gemm(self.operands.a, *self.operands.b[0].shape)
        return calls

    def names(self) -> dict[str, str]:
        return super().names() | {TORCH_INT4: baseline.Int4Gemm.name}

    def stored_weight(self) -> tuple[Tensor, ...]:
        return (self.packed[0].arranged(),)

    @property
    def operand_error(self) -> float:
        return ROUNDINGS * errors.UNIT_ROUNDOFF[self.dtype]

    def call_kernel(self, name: str, index: int) -> Tensor:
        packed = self.packed[index]
        options = self.options | packed.order._asdict() | {"kernel_name": name}
        tensors = self.operands.a[index], packed.arranged()
        return self.call_operator(_OPS.packed_mm, tensors, options, index)

    def multiplied(self) -> tuple[Tensor, Tensor]:
        """(a, b) of set 0 in float64, before kernels round the weight."""
        return self.operands.a[0].double(), self.packed[0].t().dequantize(torch.float32).double()

    def _exact(self) -> None:
        """No data has exact products in every format."""


class SubbyteWorkload(Workload):
    """The operand sets and the calls of a product of int4 or of bits; `operands` are the int8."""

    a: Sequence[Any]  # the first operand of each set, as tcgemm takes it
    b: Sequence[Any]

    def __init__(self, case: Case, device: torch.device | str) -> None:
        self.bits = 1 if case.dtype == "b1" else 4
        if case.k * self.bits % 8:
            raise RuntimeError(
                f"tcgemm.compare: K is {case.k}, but {case.dtype} fills whole bytes along K; pass "
                f"a multiple of {8 // self.bits}."
            )
        super().__init__(case, device)

    def _stored_bits(self) -> tuple[int, int]:
        return self.bits, self.bits

    @property
    def operation(self) -> BinaryOperation:
        """What is counted of bits."""
        return next((word for word in words(BinaryOperation) if word in self.case.terms), "and")

    def refill(self, largest: int | None = None) -> Operands:
        """Fills all operands with random bits."""
        self.a = [self._random(a) for a in self.operands.a]
        self.b = [self._random(b.mT).mT for b in self.operands.b]
        return self.operands

    def _random(self, integers: Tensor) -> Any:
        """A new sub-byte tensor; `integers` gets its elements."""
        shape = (*integers.shape[:-1], integers.shape[-1] * self.bits // 8)
        data = torch.empty(shape, dtype=torch.uint8, device=self.device)
        data.random_(0, 256, generator=self.generator)
        if self.case.dtype != "b1":
            tensor = tcgemm.Int4Tensor(data, signed=self.case.dtype == "s4")
            integers.copy_(tensor.to_int8())
            return tensor
        tensor = tcgemm.BinaryTensor(data)
        integers.copy_(tensor.to_bool())
        if self.operation != "and":
            integers.mul_(2).sub_(1)
        return tensor

    @property
    def bytes(self) -> int:
        tensors = (self.a[0].bytes, self.b[0].bytes, self.operands.out[0])
        return sum(tensor.nbytes for tensor in tensors)

    def plan_on(self, device: str | None = None) -> Plan:
        return plan(self.a[0], self.b[0], device=device)

    def given(self, index: int) -> tuple[Any, Any]:
        return self.a[index], self.b[index]

    def call_tcgemm(self, index: int) -> Tensor:
        a, b, out = self.a[index], self.b[index], self.operands.out[index]
        if self.case.dtype == "b1":
            return tcgemm.binary_mm(a, b, self.operation, out=out)
        return tcgemm.matmul(a, b, out=out)

    def call_int8(self, index: int) -> Tensor:
        pools = self.operands
        return tcgemm.matmul(pools.a[index], pools.b[index], out=pools.out[index])

    def candidates(self) -> dict[str, Call]:
        return super().candidates() | {INT8: self.call_int8}

    def check(self) -> Checks:
        """(None, whether the sums are those of tcgemm's int8 product)."""
        expected = self.call_int8(0).clone()
        if self.operation == "xor":
            expected = (self.case.k - expected) // 2
        self.operands.poison()
        return None, torch.equal(self.call_tcgemm(0), expected)


class _NewResults(Workload):
    """Calls that allocate their results."""

    def candidates(self) -> dict[str, Call]:
        """tcgemm and torch. Each result is kept until the next call of its index, so that the
        results of different sets are in different memory."""

        def keeping(call: Callable[[int], Any]) -> Call:
            kept: list[Any] = [None] * self.sets
            return lambda index: kept.__setitem__(index, call(index))

        return {"tcgemm": keeping(self.call_tcgemm), TORCH: keeping(self.call_baseline)}


class Training(_NewResults):
    """Layers on `device` and the calls of one case: x is a, the weight is b.mT, and the gradient of
    the result is in `out`.

    torch.autograd.grad accumulates nothing into `.grad`, so each call does the same work.
    """

    inputs: list[Tensor]
    layers: list[Any]
    torch_layers: list[torch.nn.Linear]
    bias: Any

    def __init__(self, case: Case, device: torch.device | str) -> None:
        super().__init__(case, device)
        self.inputs = [x.detach().requires_grad_() for x in self.operands.a]
        self.layers = [self._layer(tcgemm.nn.Linear, weight) for weight in self.weights]
        self.torch_layers = [self._layer(torch.nn.Linear, weight) for weight in self.weights]
        for layer in self.layers:
            layer.activation = self.activation

    def _layer(self, kind: type[torch.nn.Linear], weight: Any) -> torch.nn.Linear:
        layer = kind(self.case.k, self.case.n, device="meta", dtype=self.dtype)
        layer.weight = torch.nn.Parameter(weight.detach())
        layer.bias = torch.nn.Parameter(self.bias.detach())
        return layer

    def refill(self, largest: int | None = None) -> Operands:
        """Fills all tensors with new normal data, or with integers of at most `largest`."""
        for x in (*self.operands.out, self.bias):
            if largest is None:
                operands.fill_normal(x, self.generator)
            else:
                operands.fill_integers(x, largest, self.generator)
        return super().refill(largest)

    @property
    def bytes(self) -> int:
        """The least memory traffic: x, weight and gradient are read twice, and y, dx and dw, which
        have the same sizes, are written once."""
        pools = self.operands
        return 3 * sum(x.nbytes for x in (pools.a[0], pools.b[0], pools.out[0], self.bias))

    def _step(
        self, layer: torch.nn.Linear, index: int, activation: Activation | None = None
    ) -> tuple[Tensor, ...]:
        """(y, dx, dw, dbias) of one set; `activation` comes after the layer."""
        x = self.inputs[index]
        y = activate(layer(x), activation)
        leaves = (x, layer.weight, layer.bias)
        return y.detach(), *torch.autograd.grad(y, leaves, self.operands.out[index])

    def call_tcgemm(self, index: int) -> tuple[Tensor, ...]:
        return self._step(self.layers[index], index)

    def call_baseline(self, index: int) -> tuple[Tensor, ...]:
        return self._step(self.torch_layers[index], index, self.activation)

    def products(self) -> list[dict[str, Any]]:
        """y, dx, dw and dbias of set 0, each with the operands and the epilogue that give it."""
        x, b, grad = self.operands.a[0], self.operands.b[0], self.operands.out[0]
        ones = torch.ones((1, self.case.m), dtype=self.dtype, device=self.device)
        y, dx, dw, dbias = map(torch.atleast_2d, self.call_tcgemm(0))
        return [
            {"out": y, "a": x, "b": b, **self.epilogue},
            {"out": dx, "a": grad, "b": b.t()},
            {"out": dw, "a": grad.t(), "b": x},
            {"out": dbias, "a": ones, "b": grad},
        ]

    def check(self) -> Checks:
        """(max_error_ratio, exact) of y and of all gradients, on new data.

        With an activation, gradients are compared with torch's, and exact is None.
        """
        case, budget = self.case, BUDGET[self.device.type] / 3
        self.refill()
        products, exact = self.products(), None
        checked = products if self.activation is None else products[:1]
        common = {"accumulation": case.accumulation, "dtype": case.dtype, "budget": budget}
        ratios = [errors.error_ratio(**product, **common) for product in checked]
        if self.activation is None:
            self.refill(errors.largest_exact_integer(case.accumulation))
            exact = all(errors.is_exact(**product, budget=budget) for product in self.products())
            self.refill()
        else:
            for product, reference in zip(products[1:], self.call_baseline(0)[1:], strict=True):
                difference = (product["out"].float() - reference.float()).norm()
                ratios.append(float(difference / reference.float().norm()) / DISTANCE)
        worst = float("nan") if any(ratio != ratio for ratio in ratios) else max(ratios)
        return worst, exact


def bits(tensor: Tensor) -> Tensor:
    """The bytes, for comparisons in which -0 differs from +0 and NaN equals itself."""
    return tensor.contiguous().view(torch.uint8)


def largest(w: Tensor, pattern: SparsePattern) -> Tensor:
    """The mask of the elements to keep: the largest of each group, the first of equal ones."""
    group = GROUPS[pattern]
    size = w.float().abs().view(-1, group)
    order = size.sort(dim=1, descending=True, stable=True).indices[:, : group // 2]
    return torch.zeros_like(size, dtype=torch.bool).scatter_(1, order, True).view(w.shape)


def transposable_masks(device: torch.device | str) -> Tensor:
    """The 90 masks of a block with two elements in each row and column, (90, 16)."""
    rows = [row for row in itertools.product((0.0, 1.0), repeat=BLOCK) if sum(row) == 2]
    every = torch.tensor(
        list(itertools.product(rows, repeat=BLOCK)), dtype=torch.float64, device="cpu"
    )
    return every[(every.sum(1) == 2).all(1)].flatten(1).to(device)


def blocks(matrix: Tensor) -> Tensor:
    """The 4 x 4 blocks of a matrix: (M, K) -> (blocks, 16)."""
    m, k = matrix.shape
    return matrix.view(m // BLOCK, BLOCK, k // BLOCK, BLOCK).transpose(1, 2).reshape(-1, BLOCK**2)


def is_best(w: Tensor, pruned: Tensor) -> bool:
    """Does each block of `pruned` have one of the 90 masks, and one that keeps the most of |w|?"""
    every, size = transposable_masks(w.device), blocks(w.float().abs()).double()
    mask_blocks = blocks((pruned != 0).double())
    for block, mask in zip(size.split(CHUNK), mask_blocks.split(CHUNK), strict=True):
        most = (block @ every.t()).amax(1)
        fits = (mask @ every.t()).amax(1) == mask.sum(1)  # a kept zero of w looks pruned
        if not bool((fits & ((block * mask).sum(1) >= most * (1 - 1e-6))).all()):
            return False
    return torch.equal(bits(pruned), bits(torch.where(pruned != 0, w, torch.zeros_like(w))))


class Pass(_NewResults):
    """Weights on `device` and the calls of a pass over one of them; they are the operand a.

    The checks are in plain torch: the right elements are kept, and their bits did not change.
    """

    pattern: SparsePattern
    pruned: list[Tensor] | None = None  # the weights for torch's compression

    def __init__(self, case: Case, device: torch.device | str) -> None:
        super().__init__(case, device)
        self.pattern = default_pattern(self.dtype)

    @property
    def bytes(self) -> int:
        result = self.call_tcgemm(0)
        tensors = result if isinstance(result, tuple) else (result,)
        return self.operands.a[0].nbytes + sum(tensor.nbytes for tensor in tensors)

    def plan_on(self, device: str | None = None) -> Plan:
        """The name of the operator: a pass has one kernel."""
        return Plan(f"{self.case.op}24", "")

    def call_tcgemm(self, index: int) -> Any:
        """The tensors of compress24, or the pruned weight of prune24."""
        operator = _OPS.prune24 if self.case.op == "prune" else _OPS.compress24
        return operator(self.operands.a[index], self.pattern, True)

    def call_baseline(self, index: int) -> Any:
        """The tensors of torch's pass. torch's default for pruning keeps the largest signed values;
        the greedy algorithm keeps the largest magnitudes."""
        if self.case.op == "prune":
            w = self.operands.a[index]
            return torch._sparse_semi_structured_tile(w, algorithm="largest_abs_values_greedy")
        if self.pruned is None:
            self.pruned = [_OPS.prune24(w, self.pattern) for w in self.operands.a]
        return torch._cslt_compress(self.pruned[index])

    def check(self) -> Checks:
        """(0, exact): a pass rounds nothing."""
        w, result = self.operands.a[0], self.call_tcgemm(0)
        if self.case.op == "prune":
            return 0.0, is_best(w, result)
        values, metadata, excess = result
        dense = _OPS.decompress24(values, metadata, self.case.k, self.pattern)
        expected = torch.where(largest(w, self.pattern), w, torch.zeros_like(w))
        return 0.0, torch.equal(bits(dense), bits(expected)) and excess.tolist() == [0, -1]

    def facts(self, timings: Mapping[str, Timing]) -> dict[str, Any]:
        """The share of |w| that transposable pruning keeps, by tcgemm and by torch."""
        if self.case.op != "prune":
            return {}

        def share(pruned: Tensor) -> float:
            kept, whole = (x.double().abs().sum() for x in (pruned, self.operands.a[0]))
            return round(float(kept / whole), 5)

        found = {"kept": share(self.call_tcgemm(0))}
        return found | ({"torch_kept": share(self.call_baseline(0)[0])} if TORCH in timings else {})


def work_of(case: Case, device: torch.device | str) -> Workload:
    """The operands and calls of a case on a device; "meta" is enough for a plan."""
    if case.op in PASSES:
        return Pass(case, device)
    if case.op == "train":
        return Training(case, device)
    if case.dtype in SUBBYTE:
        return SubbyteWorkload(case, device)
    return (PackedWeightWorkload if case.packed else Workload)(case, device)
