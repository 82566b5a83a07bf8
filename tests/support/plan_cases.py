"""Shared by the tests of plans: every kind of operands, plan() for a GPU by name, and the rules
that every plan keeps.

A module that imports this is skipped where the build is for other GPUs.
"""

import functools
import math
from typing import NamedTuple

import pytest

from tcgemm import info

from support import meta_problems
from support.cases import NAMES
from support.catalog_rows import MIRRORED
from support.dtype_matrix import gemm_types

WHOLE = {80: "8.0", 89: "8.9", 90: "9.0a"}  # whose code GPUs run of a build as it is by default

if any(info.code(capability) != code for capability, code in WHOLE.items()):
    pytest.skip("a build for other architectures plans otherwise", allow_module_level=True)

DEVICES = info.devices()
H200 = "H200"
BYTES = {"f64": 8, "f32": 4, "tf32": 4, "s32": 4, "f16": 2, "bf16": 2}  # others have one
FP8, INT8 = ("e4m3", "e5m2"), ("s8", "u8")


class Types(NamedTuple):
    """Operands as plan() is asked for them, and what the kernel that serves them takes."""

    dtype: str
    dtype_b: str
    accumulator: str
    outs: tuple[str, ...]
    precision: str = ""
    scale_a: str = ""
    scale_b: str = ""
    input: str = ""  # what the tensor cores take, where it is another dtype

    def __str__(self):
        words = (*self[:3], self.precision, self.scale_a, self.scale_b)
        return "-".join(word for word in words if word)

    @property
    def options(self):
        names = ("dtype", "dtype_b", "accumulator", "precision", "scale_a", "scale_b")
        return {name: getattr(self, name) for name in names}

    @property
    def inputs(self):
        return self.input or self.dtype, self.input or self.dtype_b

    @property
    def blocks(self):
        return "128" in self.scale_a + self.scale_b

    @property
    def k_major_only(self):
        return self.inputs[0] in (*FP8, *INT8, "tf32")

    def runs_on(self, device):
        if self.dtype in FP8:
            return device["compute_capability"] >= 89
        return self.precision != "highest" or device["compute_capability"] == 90


FLOATS = ("f16", "bf16", "f32")
# Results of wide and narrow elements, by the dtype of a; of fp8, the kinds of scales as well.
OUTS = dict.fromkeys(("f16", "bf16", "f32"), FLOATS) | {"f64": ("f64",) * 3}
OUTS |= dict.fromkeys(FP8, ("bf16", "f32", "e4m3")) | dict.fromkeys(INT8, ("s32", "bf16", "s8"))
SCALES = (
    ("promoted", "row", "row"),
    ("fast", "tensor", "tensor"),
    ("promoted", "1x128", "128x128"),
)
# The type of f32 operands in the tensor cores, by precision.
CONVERTED = {"high": "tf32", "medium": "bf16"}


def named(types):
    """A row of dtype_matrix as plan() is asked for it, once for each kind of scales."""
    a, b, accumulator = (NAMES[dtype] for dtype in types[:3])
    precision = types.precision or ""
    for kind in SCALES if types.fp8 else ((precision, "", ""),):
        yield Types(a, b, accumulator, OUTS[a], *kind, input=CONVERTED.get(precision, ""))


ALL_TYPES = (
    *(one for types in gemm_types("cpu") for one in named(types)),
    Types("bf16", "bf16", "f32", ("e4m3", "e5m2", "bf16")),
)


def plan(m, n, k, *, device=H200, dtype="bf16", **options):
    return meta_problems.plan(device, dtype, m, n, k, **options)


@functools.cache
def rows_by_name():
    return {row["name"]: row for row in info.catalog() if not row["weight_bits"]}


def has_code(device, arch):
    """Does the GPU run code that holds kernels of this architecture?"""
    capability = device["compute_capability"]
    return {"sm80": True, "sm89": capability >= 89, "sm90a": capability == 90}[arch]


def words(count, dtype):
    return count * BYTES.get(dtype, 1) % 16 == 0


def check_passes(fields, m, n, k, batch, types):
    """Copies and sums lie one behind another in the workspace, 256-byte aligned."""
    end = 0
    if recompute := fields["recompute"]:
        end = check_recompute(recompute, m, n, batch, end)
    stored = ("f32",) * 2 if types.input else (types.dtype, types.dtype_b)
    for name, rows, dtype in zip(("a", "b"), (m, n), stored, strict=True):
        if copy := fields[f"repack_{name}"]:
            assert copy["to"] == ("bf16" if types.input == "bf16" else dtype)
            assert (copy["rows"], copy["k"]) == (rows, k)
            assert copy["batch"] in (1, batch)
            assert copy["pitch"] >= k
            assert words(copy["pitch"], copy["to"])
            assert copy["offset"] >= end
            assert copy["offset"] % 256 == 0
            end = copy["offset"] + copy["batch"] * rows * copy["pitch"] * BYTES.get(copy["to"], 1)
    for name, rows in (("sums_a", m), ("sums_b", n)):
        if sums := fields[name]:
            assert (sums["rows"], sums["k"]) == (rows, k)
            assert sums["offset"] >= end
            assert sums["offset"] % 256 == 0
            end = sums["offset"] + sums["batch"] * rows * 4
    if split := fields["split"]:
        end = check_split(split, m, n, k, batch, end)
    assert fields["workspace"] >= end
    if fields["slices"] > 1 and not fields["cluster_adds"]:
        least = fields["slices"] * batch * m * n * 4  # the partial sums
        assert fields["workspace"] >= end + least
    else:
        assert (fields["workspace"] == 0) == (end == 0)


def check_split(split, m, n, k, batch, end):
    """Terms, path decision and flags follow one another."""
    bf16 = split["bf16"] or "_bf16x3" in split["alternative"]["kernel"]
    for name, rows in (("a", m), ("b", n)):
        terms = split[name]
        lines, line = (k, rows) if terms["mn_major"] else (rows, k)
        assert (terms["rows"], terms["k"]) == (rows, k)
        assert terms["batch"] in (1, batch)
        assert terms["pitch"] >= line
        assert terms["pitch"] % 8 == 0
        if terms["prepared_terms"] >= 2 + bf16:
            continue
        assert terms["offset"] >= end
        assert terms["offset"] % 256 == 0
        end = terms["offset"] + terms["batch"] * (
            4 * rows + (2 + bf16) * 2 * lines * terms["pitch"]
        )
    assert split["decision"] >= end
    assert (split["alternative"] is None) == split["bf16"]
    return check_recompute(split["recompute"], m, n, batch, split["decision"] + 4)


def check_recompute(recompute, m, n, batch, end):
    """A flag is a byte for 16 of the 64 rows of a tile."""
    assert recompute["mask"] >= end
    assert (recompute["tiles_m"], recompute["tiles_n"]) == (math.ceil(m / 64), math.ceil(n / 64))
    assert recompute["mask_bytes"] == 4 * batch * recompute["tiles_m"] * recompute["tiles_n"]
    return recompute["mask"] + recompute["mask_bytes"]


def served_by(types, inputs, row):
    """Operands and accumulator of the row that serves these types."""
    if types.precision != "highest":
        return (*inputs, types.accumulator)
    part = {2: "f16", 3: "bf16"}[row["terms"]] if row["mainloop"] == "split_fp32" else "f32"
    return (part, part, "f64" if row["terms"] == 1 else "f32")


def check_plan(fields, device, m, n, k, batch, types, layout):
    """The rules that every plan keeps."""
    row = rows_by_name()[fields["kernel"]]
    inputs = types.inputs
    if fields["swap_ab"]:
        m, n = n, m
        inputs = inputs[::-1]
        types = types._replace(dtype=types.dtype_b, dtype_b=types.dtype)
        layout = MIRRORED[layout]
    types_of_row = served_by(types, inputs, row)
    assert (row["input"], row["input_b"], row["accumulator"]) == types_of_row
    assert (fields["split"] is not None) == (row["mainloop"] == "split_fp32")
    assert (fields["recompute"] is not None) == (row["mainloop"] == "tf32x2")
    assert row["block_scaled"] == (types.blocks and k > 128)  # else one scale a row is left
    assert row["promoted"] or row["gemv"] or types.precision != "promoted"
    assert has_code(device, row["arch"])
    assert row["shared_bytes"] <= device["shared_bytes"]

    tile_m, tile_n, _ = row["tile"]
    rows, _, columns = str(fields["cluster"]).partition("x")
    rows, columns = int(rows), int(columns or 1)
    cluster = rows * columns
    if row["gemv"]:  # the blocks of its clusters share a tile
        rows = 1
    assert fields["tiles_m"] == math.ceil(math.ceil(m / tile_m) / rows)
    assert fields["tiles_n"] == math.ceil(math.ceil(n / tile_n) / columns)
    blocks = fields["tiles_m"] * fields["tiles_n"] * batch * cluster * fields["slices"]
    if fields["cluster_adds"]:
        assert fields["slices"] > 1 and cluster == 1 and fields["grid"] == blocks
    assert 0 < fields["grid"] <= blocks
    assert fields["epilogue_path"] in row["epilogue_paths"]
    assert fields["grid"] % cluster == 0
    thin = row["mainloop"] == "thin"
    tma = row["arch"] == "sm90a" and row["accumulator"] != "f64" and not (row["gemv"] or thin)
    if row["gemv"]:
        assert cluster == (1 if tile_m == 8 else 2)
        assert fields["grid"] == blocks and k > 0
    elif thin:
        assert cluster == 1 and 0 < k <= row["tile"][2] and n <= row["tile"][1]
    elif row["arch"] == "sm90a":
        assert cluster in ((1, 2, 4, 8) if tma else (1,))
        resident = device["multiprocessors"]
        if cluster >= 4:
            resident = 4 * device["clusters_of_four"]
        assert fields["grid"] == blocks or fields["grid"] > resident - cluster
        assert fields["grid"] <= resident
        assert k > 0 or not tma
    else:
        assert cluster == 1
        assert fields["grid"] == blocks

    check_passes(fields, m, n, k, batch, types)
    majors = {
        "a": "N" if fields["repack_a"] else layout[1],  # a copy is K-major
        "b": "T" if fields["repack_b"] else layout[0],
    }
    for name, letter in zip(("b", "a"), row["layout"], strict=True):
        by_elements = types.k_major_only or row["gemv"] or thin
        by_element = not tma and not fields[f"vector_{name}"] and by_elements
        # The layout of a single row is anybody's, and so are elements that are read one by one.
        assert majors[name] == letter or min(m, n, k) <= 1 or by_element

    assert fields["microseconds"] > 0
    assert math.isfinite(fields["microseconds"])
    assert fields["bytes"] > 0
    assert fields["bound"] in ("compute", "memory", "launch")
    assert fields["kernel"] in fields["explain"]
    assert fields["kernel"] in fields["check_layout"]
    return row


def types_of(row):
    """The operands and options that a row of the catalog computes."""
    if row["terms"] > 1 or row["input"] == "f32":
        return Types("f32", "f32", "f32", (), "highest")
    fp8, blocks = row["input"] in FP8, row["block_scaled"]
    return Types(
        row["input"],
        row["input_b"],
        row["accumulator"],
        (),
        "promoted" if fp8 and row["promoted"] else "fast" if fp8 else "",
        "1x128" if blocks else "",
    )
