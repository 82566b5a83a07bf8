"""tcgemm: hand-written Tensor Core matrix products as PyTorch operators.

tcgemm.mm, bmm, matmul, addmm, baddbmm, linear  products with a fused epilogue
tcgemm.grouped_mm                               groups of rows, each with its own matrix
tcgemm.prepare                                  splits a float32 weight once for many products
tcgemm.quantize, dequantize                     8-bit values and their scales
tcgemm.quantized_linear                         multiplies in 8 bits; its gradients have 16 bits
tcgemm.pack_weight                              4 or 8 bits a weight beside 16-bit activations
tcgemm.prune24, compress24                      2:4 sparsity; products take a SparseTensor24
tcgemm.Int4Tensor                               4-bit integers, for products with int32 sums
tcgemm.BinaryTensor, binary_mm                  bits, and their products
tcgemm.nn.Linear, nn.QuantLinear                layers; tcgemm.swap_linear puts them into a model
tcgemm.refresh_weights                          kept forms of weights, after writes past torch
tcgemm.compare                                  products, or a model's layers, beside torch's
tcgemm.tune                                     measures which kernels are fastest on this GPU
tcgemm.batch_invariant                          the bits of a row do not depend on other rows
tcgemm.use                                      torch's own products run through tcgemm
tcgemm.emulate                                  the bits that tensor cores compute, on a CPU
tcgemm.numerics                                 what they lose, for a product and in experiments
tcgemm.typing                                   the words of arguments, for annotations
tcgemm.check_layout, explain                    how operands are stored, which kernel runs, and why
$ tcgemm                                        the command: what is installed, what runs here
"""

import importlib
from typing import TYPE_CHECKING, Any

from tcgemm import _library

_library.load()

with _library.every_operator():
    from tcgemm import info, nn, packed, saved_names

    # "as" tells type checkers that these names are public, too.
    from tcgemm import sparse_cutlass as sparse_cutlass
    from tcgemm import typing as typing
    from tcgemm.nn import constant_weights, refresh_weights, swap_linear
    from tcgemm.operands.integers import BinaryTensor, Int4Tensor, binary_mm
    from tcgemm.operands.packed import PackedWeight, pack_weight
    from tcgemm.operands.quant.linear import quantized_linear
    from tcgemm.operands.quant.quantize import dequantize, quantize
    from tcgemm.operands.sparse import SparseTensor24, compress24, prune24
    from tcgemm.ops.explanation import check_layout, explain
    from tcgemm.ops.functional import addmm, baddbmm, bmm, linear, matmul, mm
    from tcgemm.ops.grouped import grouped_mm
    from tcgemm.ops.invariance import batch_invariant
    from tcgemm.ops.prepared import Prepared, prepare
    from tcgemm.ops.tuned import load_when_cuda_starts
    from tcgemm.override import use
    from tcgemm.version import __version__

if TYPE_CHECKING:
    from tcgemm import emulate as emulate
    from tcgemm import measure as measure
    from tcgemm import numerics as numerics
    from tcgemm.measure.compare import compare
    from tcgemm.measure.tune import tune

saved_names.register()
load_when_cuda_starts()

__all__ = [
    "BinaryTensor",
    "Int4Tensor",
    "PackedWeight",
    "Prepared",
    "SparseTensor24",
    "__version__",
    "addmm",
    "baddbmm",
    "batch_invariant",
    "binary_mm",
    "bmm",
    "check_layout",
    "compare",
    "compress24",
    "constant_weights",
    "dequantize",
    "explain",
    "grouped_mm",
    "info",
    "linear",
    "matmul",
    "mm",
    "nn",
    "pack_weight",
    "packed",
    "prepare",
    "prune24",
    "quantize",
    "quantized_linear",
    "refresh_weights",
    "swap_linear",
    "tune",
    "use",
]


if not TYPE_CHECKING:  # a checker would take every name for one of the module

    def __getattr__(name: str) -> Any:
        """Imports a package at its first use: `import tcgemm` has to be cheap."""
        if name in ("compare", "tune"):
            return getattr(importlib.import_module(f"tcgemm.measure.{name}"), name)
        if name in ("emulate", "measure", "numerics"):
            return importlib.import_module(f"tcgemm.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and those that every module has; not the packages behind them."""
    special = [name for name in globals() if name.startswith("__")]
    packages = ("emulate", "measure", "numerics", "sparse_cutlass", "typing")
    return sorted({*__all__, *special, *packages} - {"__dir__", "__getattr__"})
