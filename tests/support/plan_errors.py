"""The sentences of tcgemm.info.plan and tcgemm.info.code, as rows: a call, and what it says."""

import pytest

from tcgemm import info


def ask(m=8, n=8, k=8, *, device="H200", dtype="bf16", **options):
    return lambda: info.plan(device, dtype, m, n, k, **options)


ROWS = {
    "strides": (ask(a=(1, 2)), ["tcgemm: the strides of a are 2 numbers; expected 3"]),
    "dtype": (ask(dtype="bf17"), ["tcgemm: no dtype is called 'bf17'; expected one of", "bf16"]),
    "layout": (ask(layout="XY"), ["tcgemm: no layout is called 'XY'; expected TN"]),
    "scales": (ask(scale_a="col"), ["tcgemm: no scales are called 'col'; expected tensor"]),
    "epilogue": (ask(epilogue=["b"]), ["tcgemm: nothing in the epilogue is called 'b'"]),
    "sparse": (ask(sparse="c"), ["tcgemm: sparse is 'c'; expected a, b or nothing."]),
    "sizes": (ask(-1), ["tcgemm: m is -1, n is 8, k is 8 and batch is 1; expected sizes"]),
    "large": (ask(1 << 40), ["tcgemm: m is 1099511627776, n is 8", "matrices of at most 2**48"]),
    "stride": (ask(b=(0, -1, 1)), ["tcgemm: a stride of b is -1; expected 0 to 2**48."]),
    "arches": (
        lambda: info.code(90, "9" * 12),
        ["tcgemm: arches is '999999999999'; expected architectures such as 8.0", "by commas."],
    ),
    "device": (ask(device="TPU"), ["tcgemm: no device is called 'TPU'; expected one of", "H200"]),
}
TABLE = [pytest.param(*row, id=f"plan: {name}") for name, row in ROWS.items()]
