"""The five public operators in one form.

Every layer of the Python side (front, gradients, vmap, fakes) sees a call as the same operands,
whichever operator was called:

    a, b, c, bias, residual, activation, alpha, beta, out_dtype, acc_dtype

and as a product of matrices, a[..., M, K] @ b[..., K, N]: `lift` adds the row or column that a 1-D
operand of matmul or linear lacks, `lower` takes it out of the result.
"""

import torch

OPERANDS = (
    *("a", "b", "c", "bias", "residual"),
    *("activation", "alpha", "beta", "out_dtype", "acc_dtype"),
)
TENSORS = OPERANDS[:5]
DEFAULTS = {"alpha": 1.0, "beta": 1.0}


class Operator:
    """mm, bmm, matmul and linear: no c. `weight`: b is stored transposed, as linear's (N, K)."""

    positional = ("a", "b", "bias", "residual")

    def __init__(self, name: str, *, weight: bool = False):
        packet = getattr(torch.ops.tcgemm, name)
        self.name = name
        self.default = packet.default
        self.out = packet.out
        self.weight = weight

    @staticmethod
    def tensors(a, b, c, bias, residual):
        return a, b, bias, residual

    @staticmethod
    def keywords(activation, alpha, beta, out_dtype, acc_dtype):
        return {
            "activation": activation,
            "alpha": alpha,
            "out_dtype": out_dtype,
            "acc_dtype": acc_dtype,
        }

    def run(self, a, b, c, bias, residual, activation, alpha, beta, out_dtype, acc_dtype):
        """Calls the operator; every keyword costs time, so the commonest calls pass none."""
        if activation is residual is out_dtype is acc_dtype is None and alpha == 1.0:
            return self.default(a, b) if bias is None else self.default(a, b, bias)
        keywords = self.keywords(activation, alpha, beta, out_dtype, acc_dtype)
        return self.default(*self.tensors(a, b, c, bias, residual), **keywords)

    def run_out(self, out, a, b, c, bias, residual, *options):
        """Calls the overload that writes into `out`."""
        self.out(*self.tensors(a, b, c, bias, residual), **self.keywords(*options), out=out)

    def unpack(self, args, kwargs):
        """The arguments of the schema as the common operands. The dispatcher drops defaults."""
        given = dict(zip(self.positional, args, strict=False), **kwargs)
        return tuple(given.get(name, DEFAULTS.get(name)) for name in OPERANDS)

    def matrix_a(self, a, dims):
        """a as matrices; `dims` are those of the call, without what vmap put in front."""
        return a.unsqueeze(-2) if dims == 1 else a

    def matrix_b(self, b, dims):
        """b as matrices (K, N)."""
        if self.weight:
            return b.mT
        return b.unsqueeze(-1) if dims == 1 else b

    def lift(self, result, a_dims, b_dims):
        """A tensor that lies as the result does, with the row and the column of the product."""
        if b_dims == 1:
            result = result.unsqueeze(-1)
        return result.unsqueeze(-2) if a_dims == 1 else result

    def lower(self, result, a_dims, b_dims):
        """The inverse of lift."""
        if a_dims == 1:
            result = result.squeeze(-2)
        return result.squeeze(-1) if b_dims == 1 else result


class Addmm(Operator):
    """addmm: c comes first, and beta scales it."""

    positional = ("c", "a", "b", "bias", "residual")

    @staticmethod
    def tensors(a, b, c, bias, residual):
        return c, a, b, bias, residual

    @staticmethod
    def keywords(activation, alpha, beta, out_dtype, acc_dtype):
        common = Operator.keywords(activation, alpha, beta, out_dtype, acc_dtype)
        return {"beta": beta, **common}

    def run(self, a, b, c, bias, residual, *options):
        return self.default(*self.tensors(a, b, c, bias, residual), **self.keywords(*options))


MM = Operator("mm")
BMM = Operator("bmm")
MATMUL = Operator("matmul")
ADDMM = Addmm("addmm")
LINEAR = Operator("linear", weight=True)

ALL = (MM, BMM, MATMUL, ADDMM, LINEAR)
