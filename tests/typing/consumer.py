"""Calls of the public functions as users write them, for a type checker in its strict mode.

The file also runs: a checker says nothing about values.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Unpack, assert_type

import torch
from torch import Tensor

import tcgemm
from tcgemm.measure.compare import Comparison
from tcgemm.measure.tune import Tuning
from tcgemm.ops.explanation import Explanation
from tcgemm.override import Use, UseReport
from tcgemm.typing import (
    Activation,
    Granularity,
    Layout,
    Options,
    PackedFormat,
    Precision,
    WeightGranularity,
    words,
)


def project(x: Tensor, w: Tensor, **options: Unpack[Options]) -> Tensor:
    """A wrapper that passes on the keyword arguments."""
    return tcgemm.mm(x, w, **options)


def layer(x: Tensor, w: Tensor, **options: Unpack[tcgemm.typing.LinearOptions]) -> Tensor:
    return tcgemm.linear(x, w, torch.zeros(len(w)), **options)


def products(activation: Activation | None, precision: Precision | None) -> None:
    a, b, bias = torch.randn(4, 8), torch.randn(8, 6), torch.randn(6)
    batch_a, batch_b, out = torch.randn(2, 4, 8), torch.randn(2, 8, 6), torch.empty(4, 6)
    assert_type(tcgemm.mm(a, b), Tensor)
    assert_type(tcgemm.mm(a, b, bias=bias, activation=activation, alpha=2, residual=None), Tensor)
    assert_type(tcgemm.mm(a, b, precision=precision, out_dtype="bfloat16"), Tensor)
    assert_type(tcgemm.mm(a, b, amax=True, activation="gelu"), tuple[Tensor, Tensor])
    assert_type(tcgemm.mm(a, b, out=out), Tensor)
    assert_type(tcgemm.bmm(batch_a, batch_b, amax=False), Tensor)
    assert_type(tcgemm.bmm(batch_a, batch_b, amax=True), tuple[Tensor, Tensor])
    assert_type(tcgemm.matmul(batch_a, b, acc_dtype=torch.float32), Tensor)
    assert_type(tcgemm.matmul(batch_a, b, amax=True), tuple[Tensor, Tensor])
    assert_type(tcgemm.addmm(bias, a, b, beta=0.5), Tensor)
    assert_type(tcgemm.addmm(bias, a, b, beta=0.5, amax=True), tuple[Tensor, Tensor])
    assert_type(tcgemm.baddbmm(bias, batch_a, batch_b, alpha=0.5), Tensor)
    assert_type(tcgemm.baddbmm(bias, batch_a, batch_b, amax=True), tuple[Tensor, Tensor])
    assert_type(tcgemm.linear(a, b.t(), bias, activation="silu", residual=out), Tensor)
    assert_type(tcgemm.linear(a, b.t(), amax=True), tuple[Tensor, Tensor])
    assert_type(project(a, b, activation="relu", precision="high"), Tensor)
    assert_type(layer(a, b.t(), alpha=0.5), Tensor)


def prepared(x: Tensor, w: Tensor) -> None:
    p = tcgemm.prepare(w)
    assert_type(p, tcgemm.Prepared)
    assert_type(p.t(), tcgemm.Prepared)
    assert_type(p.weight, Tensor)
    assert_type(p.shape, torch.Size)
    assert_type(p.nbytes, int)
    assert_type(p.fresh, bool)
    assert_type(p.to("cpu"), tcgemm.Prepared)
    assert_type(tcgemm.linear(x, p), Tensor)
    assert_type(tcgemm.mm(x, p.t(), amax=True), tuple[Tensor, Tensor])
    assert_type(tcgemm.addmm(torch.zeros(len(w)), x, p.t()), Tensor)


def eight_bits(x: Tensor, w: Tensor, granularity: Granularity, rows: WeightGranularity) -> None:
    values, scale = tcgemm.quantize(x, torch.int8, granularity)
    assert_type(tcgemm.quantize(x, torch.int8, scale=x[0, 0]), tuple[Tensor, Tensor])
    assert_type(
        tcgemm.quantize(x, torch.int8, scale=x[0, 0], amax=True), tuple[Tensor, Tensor, Tensor]
    )
    assert_type(values, Tensor)
    assert_type(tcgemm.dequantize(values, scale), Tensor)
    assert_type(tcgemm.dequantize(values, scale, torch.bfloat16), Tensor)
    w8, scale_w = tcgemm.quantize(w, torch.int8, "row")
    x8, scale_x = tcgemm.quantize(x, torch.int8, "row")
    y = tcgemm.linear(
        x8, w8, scale_a=scale_x, scale_b=scale_w.t(), zero_a=None, out_dtype=torch.float16
    )
    assert_type(y, Tensor)
    y = tcgemm.quantized_linear(x, w, dtype=torch.int8, granularity=rows, activation="gelu")
    assert_type(y, Tensor)


def packed(x: Tensor, w: Tensor, format: PackedFormat) -> None:
    p = tcgemm.pack_weight(w, format, 64, method="mse", zero_points=False)
    assert_type(p, tcgemm.PackedWeight)
    assert_type(p.t(), tcgemm.PackedWeight)
    assert_type(p.codes, Tensor)
    assert_type(p.zero_points, Tensor | None)
    assert_type(p.dequantize(torch.bfloat16), Tensor)
    assert_type(tcgemm.linear(x, p, activation="gelu"), Tensor)
    assert_type(tcgemm.mm(x, p.t()), Tensor)
    assert_type(tcgemm.packed.from_mxfp4(w, x, dtype="float16"), tcgemm.PackedWeight)
    layer = tcgemm.nn.PackedLinear.from_packed(p, activation="gelu")
    assert_type(layer, tcgemm.nn.PackedLinear)
    assert_type(layer.forward(x), Tensor)
    assert_type(layer.to_linear(), torch.nn.Linear)
    assert_type(layer.packed, tcgemm.PackedWeight)
    tcgemm.nn.PackedLinear(64, 64, format="nf4", group_size=None)


def sparse(x: Tensor, w: Tensor) -> None:
    assert_type(tcgemm.prune24(w, method="transposable", pattern="2:4"), Tensor)
    s = tcgemm.compress24(w, prune=True, transposable=True)
    assert_type(s, tcgemm.SparseTensor24)
    assert_type(s.t(), tcgemm.SparseTensor24)
    assert_type(s.values, Tensor)
    assert_type(s.metadata, Tensor)
    assert_type(s.mask(w), tcgemm.SparseTensor24)
    again = tcgemm.SparseTensor24.from_parts(s.values, s.metadata, 64)
    assert_type(again.clone(), tcgemm.SparseTensor24)
    assert_type(again.to(torch.bfloat16), tcgemm.SparseTensor24)
    assert_type(tcgemm.linear(x, s), Tensor)
    assert_type(tcgemm.mm(x, s.t(), bias=torch.zeros(len(w))), Tensor)
    packed, meta = tcgemm.sparse_cutlass.to_cutlass(s)
    assert_type(tcgemm.sparse_cutlass.from_cutlass(packed, meta), tcgemm.SparseTensor24)


def layers(x: Tensor, activation: Activation) -> None:
    linear = tcgemm.nn.Linear(64, 64, bias=False, activation=activation, dtype=torch.float32)
    assert_type(linear.weight, Tensor)
    assert_type(linear.prepared, tcgemm.Prepared | None)
    assert_type(linear.forward(x), Tensor)
    quant = tcgemm.nn.QuantLinear.from_linear(linear, torch.int8, granularity="row")
    assert_type(quant, tcgemm.nn.QuantLinear)
    assert_type(quant.forward(x), Tensor)
    assert_type(quant.to_linear(), torch.nn.Linear)
    half = tcgemm.nn.SparseLinear24.from_linear(
        linear, method="magnitude", learns=True, refresh_every=10, gradient="straight_through"
    )
    assert_type(half, tcgemm.nn.SparseLinear24)
    assert_type(half.forward(x), Tensor)
    assert_type(half.to_linear(), torch.nn.Linear)
    tcgemm.nn.SparseLinear24(64, 64, dtype=torch.bfloat16, method="transposable")
    tcgemm.nn.QuantLinear(64, 64, dtype=torch.float8_e4m3fn, granularity="128x128")
    tcgemm.nn.MultiheadAttention(64, 4, batch_first=True)
    output: Tensor = linear(x)
    assert output.shape == x.shape


def swaps(model: torch.nn.Module) -> None:
    def wide(module: torch.nn.Module, name: str) -> bool:
        return name != "2" and getattr(module, "in_features", 0) > 16

    report = tcgemm.swap_linear(model, wide, skip=["2"])
    tcgemm.swap_linear(model, to=tcgemm.nn.PackedLinear, format="int4", group_size=128)
    assert_type(report, tcgemm.nn.SwapReport)
    assert_type(report.swapped, list[str])
    assert_type(report.skipped, dict[str, str])
    assert_type(report.coverage(), str)
    report.undo()
    tcgemm.swap_linear(model, "*", to=tcgemm.nn.Linear, prepare=False).undo()
    tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear, dtype="int8", granularity="tensor").undo()
    tcgemm.swap_linear(
        model, to=tcgemm.nn.SparseLinear24, learns=True, gradient="masked", shared=True
    ).undo()


def uses(x: Tensor, w: Tensor) -> None:
    with tcgemm.use(dtypes=("bf16", torch.float32), min_size=8, min_flops=1e3) as active:
        torch.mm(x, w.t())
    assert_type(active, Use)
    assert_type(active.active, bool)
    report = active.report()
    assert_type(report, UseReport)
    assert_type(report.taken, int)
    assert_type(report.reasons, dict[str, int])
    for row in report.rows:
        assert_type(row.sizes, tuple[int, int, int, int] | None)
    tcgemm.use(table=[]).end()


def answers(a: Tensor, b: Tensor, layout: Layout) -> None:
    text = tcgemm.explain(a, b, bias=torch.zeros(b.shape[1]), activation="relu", device="H200")
    assert_type(text, Explanation)
    assert_type(text.kernel, str | None)
    assert_type(text.tile, tuple[int, int, int] | None)
    assert_type(text.microseconds, float | None)
    assert_type(text.fields, dict[str, Any])
    assert_type(tcgemm.check_layout(a, b, device="H200"), Explanation)
    assert_type(tcgemm.info.build(), dict[str, Any])
    assert_type(tcgemm.info.catalog(), list[dict[str, Any]])
    assert_type([row.runs for row in tcgemm.info.support()], list[bool])
    assert_type(tcgemm.__version__, str)
    print(tcgemm.info.report())


def comparisons(model: torch.nn.Module, x: Tensor, folder: Path) -> None:
    def product(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    result = tcgemm.compare(
        [(8, 8, 8), "8x16x8"],
        dtypes=["bf16", torch.float32, "float16"],
        layouts=("TN", "NN"),
        against=["torch", product],
        activation="relu",
        seconds=0.001,
        device="cpu",
        progress=False,
    )
    assert_type(result, Comparison)
    assert_type(result.rows, list[dict[str, Any]])
    result.save(folder / "rows.json")
    assert_type(tcgemm.measure.compare.load(folder / "rows.json"), Comparison)
    tcgemm.use(table=result).end()
    lines: list[str] = []
    of_model = tcgemm.compare(
        model, x, to=tcgemm.nn.Linear, skip="0", against=(), seconds=0.001, progress=lines.append
    )
    assert_type(of_model, Comparison)
    assert_type(of_model.baselines, list[str])


def tuned(model: torch.nn.Module) -> Tuning:
    result = tcgemm.tune([(8, 8, 8), "8x16x8"], dtypes=["bf16", "e4m3"], seconds=0.1)
    assert_type(result, Tuning)
    assert_type(result.rows, list[dict[str, Any]])
    return tcgemm.tune(model, rows=[1, 16], progress=False)


def main() -> None:
    x, w = torch.randn(32, 64), torch.randn(64, 64)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    assert "gelu" in words(Activation)
    products("gelu", "high")
    prepared(x, w)
    eight_bits(x, w, "1x128", "row")
    sparse(x.half(), w.half())
    layers(x, "relu")
    swaps(model)
    uses(x, w)
    answers(x, w, "TN")
    with tempfile.TemporaryDirectory() as folder:
        comparisons(model, x, Path(folder))


if __name__ == "__main__":
    main()
