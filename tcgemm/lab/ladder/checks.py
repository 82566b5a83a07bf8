"""What the records of the ladders must show: of results, and of the ideas of the steps."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tcgemm.lab import store
from tcgemm.lab.ladder.steps import PADDINGS, TILES, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Record = dict[str, Any]
    Check = Callable[[dict[str, Any]], Iterator[str]]

NOISE = 0.02  # two times that differ by less are equal
PLATEAU = 0.03
NEAR_PLATEAU = 0.6  # of the plateau, by the best tile of 001_6
NEAR_CUBLAS = 0.5  # of cuBLAS, by the last step of 004 on Hopper
PADDED = 1.3  # times as fast as the plain layout of 000
OWN_ORDER = ("004_3_2_outside",)  # its sums leave the tensor core, so it has bits of its own


def _of(results: dict[str, Any], step: str) -> list[Record]:
    return [record for record in results["records"] if record["step"] == step and record.get("us")]


def _best(results: dict[str, Any], step: str) -> Record | None:
    rungs = [record for record in _of(results, step) if record["is_rung"]]
    return min(rungs, key=lambda record: record["us"], default=None)


def _at(results: dict[str, Any], step: str, variant: str) -> Record | None:
    return next((record for record in _of(results, step) if record["variant"] == variant), None)


def exact(results: dict[str, Any]) -> Iterator[str]:
    """Whole numbers give exact results, and errors of normal data stay within their bound."""
    for record in results["records"]:
        name = f"{record['step']} {record['variant']}".strip()
        if record.get("exact") is False:
            yield f"{name} multiplies whole numbers wrongly."
        if record.get("error") is not None and not record["error"] <= 1:
            yield f"{name} has {record['error']:.3g} of the error that its bound allows."


def same_bits(results: dict[str, Any]) -> Iterator[str]:
    """The kernels of a ladder with the same dtypes add in one order."""
    first: dict[tuple[str, ...], str] = {}
    for record in results["records"]:
        if record["step"] in OWN_ORDER or record.get("same_bits") is None:
            continue
        name = f"{record['step']} {record['variant']}".strip()
        dtypes = record["document"], record["operands"], record["sums"]
        if record["same_bits"]:
            first.setdefault(dtypes, name)
        else:
            before = first.get(dtypes, "the first kernel of its dtypes")
            yield f"{name} has other bits than {before}."


def faster(results: dict[str, Any]) -> Iterator[str]:
    """The steps of 002 and 004 are each at least as fast as the one before."""
    for document in ("002", "004"):
        names = list(dict.fromkeys(step.name for step in steps(document) if step.is_rung))
        names = [name for name in names if name != "002_6_edges"]
        for before, after in itertools.pairwise(names):
            first, second = _best(results, before), _best(results, after)
            slack = 1.03 if after == "004_3_0" else 1 + NOISE if document == "004" else 1
            if first and second and second["us"] > slack * first["us"]:
                yield (
                    f"{after} takes {second['us']:.4g} us, and the step before it, {before}, "
                    f"{first['us']:.4g}."
                )


def paddings(results: dict[str, Any]) -> Iterator[str]:
    """Of two paddings of 001_5, the one with fewer computed conflicts is not slower."""
    for tile in TILES:
        cells = [
            record
            for pad in PADDINGS
            if (record := _at(results, "001_5_shared_a", f"{tile}x{tile}x4, pad {pad}"))
        ]
        cells.sort(key=lambda record: record["conflicts"]["LDS a"])
        for fewer, more in itertools.combinations(cells, 2):
            ways = [record["conflicts"]["LDS a"] for record in (fewer, more)]
            if ways[0] < ways[1] and fewer["us"] > (1 + NOISE) * more["us"]:
                yield (
                    f"001_5 {fewer['variant']} has {ways[0]} ways, but {more['variant']}, which "
                    f"has {ways[1]}, is {fewer['us'] / more['us']:.3f} times as fast."
                )


def plateau(results: dict[str, Any]) -> Iterator[str]:
    """001_peak levels off at the rate that the probe measured, and 001_6 comes near."""
    peak = [record for record in _of(results, "001_peak") if record["variant"].startswith("m8n8k4")]
    if not peak:
        return
    level = max(record["tflops"] for record in peak)
    probed = [
        record["tflops"]
        for record in store.results("probe").get(results["header"]["gpu"], {}).get("records", [])
        if record["row"] in ("wmma f64 f64 f64 m8n8k4", "mma f64 f64 f64 m8n8k4")
        and record.get("tflops")
    ]
    if probed and abs(level / max(probed) - 1) > PLATEAU:
        yield (
            f"001_peak levels off at {level:.3g} TFLOP/s, and the probe measured {max(probed):.3g}."
        )
    best = _best(results, "001_6_shared_ab")
    if best and best["tflops"] < NEAR_PLATEAU * level:
        yield (
            f"The best of 001_6, {best['variant']}, reaches {best['tflops'] / level:.2f} of the "
            f"plateau; expected {NEAR_PLATEAU}."
        )


def ablation(results: dict[str, Any]) -> Iterator[str]:
    """003_baseline is the slowest of the four, and 003_both the fastest."""
    singles = {name: _best(results, f"003_{name}") for name in ("baseline", "pipeline", "permuted")}
    pair = _best(results, "003_both")
    baseline = singles["baseline"]
    for name, record in singles.items():
        if record and pair and pair["us"] > record["us"]:
            yield f"003_both takes {pair['us']:.4g} us, and 003_{name} {record['us']:.4g}."
        if record and baseline and record["us"] > baseline["us"]:
            yield f"003_{name} takes {record['us']:.4g} us, and 003_baseline {baseline['us']:.4g}."


def ends(results: dict[str, Any]) -> Iterator[str]:
    """The last step of 004 reaches its share of cuBLAS; padding pays in 000."""
    last = _best(results, "004_3_1")
    if last and last.get("x_cublas") and last["x_cublas"] < NEAR_CUBLAS:
        yield f"004_3_1 reaches {last['x_cublas']:.3f} of cuBLAS; expected {NEAR_CUBLAS}."
    padded = _at(results, "000_hgemm", "256x256x32 128x64")
    plain = _at(results, "000_hgemm", "256x256x32 128x64, no padding")
    if padded and plain and plain["us"] < PADDED * padded["us"]:
        yield (
            f"The padded layout of 000 is {plain['us'] / padded['us']:.3f} times as fast as the "
            f"plain one; expected {PADDED}."
        )


LIMITS: tuple[Check, ...] = (exact, same_bits)
PATTERNS: tuple[Check, ...] = (faster, paddings, plateau, ablation, ends)


def sentences(results: dict[str, Any], checks: tuple[Check, ...]) -> list[str]:
    """What is broken, in sentences."""
    return [sentence for check in checks for sentence in check(results)]
