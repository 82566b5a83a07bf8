"""The models have the layouts of the kernels: their formulas are read from csrc."""

import re

import pytest

from tcgemm import cli
from tcgemm.lab.model import banks
from tcgemm.lab.probe import groups

from support.source_tree import ROOT

CSRC = ROOT / "csrc"


def formula(path, function):
    """A C++ function of one line as a Python function: its / divides integers."""
    text = (CSRC / path).read_text()
    match = re.search(rf"int {function}\(int row, int chunk\) {{\s*return ([^;]+);", text)
    code = compile(match[1].replace("/", "//"), path, "eval")
    return lambda row, chunk: eval(code, {}, {"row": row, "chunk": chunk})


@pytest.mark.parametrize(
    ("path", "function", "layout", "chunks"),
    [
        ("tile/swizzle.cuh", "swizzle128", banks.swizzled128, 8),
        ("tile/swizzle.cuh", "swizzle64", banks.swizzled64, 4),
        ("lab/003_permuted.cu", "offset", banks.swizzled128, 8),
        ("lab/004_2_0.cu", "offset", banks.swizzled64, 4),
        ("lab/004_3_2_outside.cu", "offset", banks.swizzled64, 4),
        ("lab/003_baseline.cu", "offset", banks.row_major(128), 8),
    ],
)
def test_swizzles_are_those_of_the_kernels(path, function, layout, chunks):
    address = formula(path, function)
    for row in range(32):
        for chunk in range(chunks):
            assert address(row, chunk) == layout(row, 16 * chunk), (row, chunk)


def test_the_pitches_of_float64_are_those_of_the_kernels():
    """K-major rows have 128 bytes and 4 elements, others the tile and kPadBytes."""
    text = (CSRC / "tile/fp64_producer.cuh").read_text()
    depth = int(re.search(r"kDepth = (\d+) / kSize;", text)[1])
    k_major = int(re.search(r"kPad = kMajor == Major::K \? (\d+) : kPadBytes / kSize;", text)[1])
    config = (CSRC / "core/gemm_config.h").read_text()
    pad = int(re.search(r"kPadBytes = (\d+);", config)[1])
    assert "kPitch = (kMajor == Major::K ? kDepth : kTile) + kPad;" in text
    for name, size in (("float64", 8), ("float32", 4)):
        k_rows, m_rows = banks.row_major(depth + size * k_major), banks.row_major(128 * size + pad)
        k_name = f"{name}, rows of {depth // size} of k and {k_major} more"
        m_name = f"{name}, rows of 128 of m and {pad // size} more"
        for lane in range(32):
            m, k = lane // 4, lane % 4
            assert banks.PATTERNS[k_name].addresses[lane] == k_rows(m, size * k)
            assert banks.PATTERNS[m_name].addresses[lane] == m_rows(k, size * m)


@pytest.mark.parametrize("tile", range(16, 257, 16))
def test_float64_has_no_conflicts_for_any_tile(tile):
    for size, pad in ((8, 4), (4, 8)):
        rows = banks.transposed_addresses(banks.row_major(size * (tile + pad)), size)
        assert banks.ways(rows, size) == 1
    assert banks.ways(banks.transposed_addresses(banks.row_major(8 * tile), 8), 8) == 4


def test_ways_of_the_patterns():
    assert {name: pattern.ways for name, pattern in banks.PATTERNS.items()} == {
        "float64, rows of 16 of k and 4 more": 1,
        "float64, rows of 128 of m and 4 more": 1,
        "float32, rows of 32 of k and 4 more": 1,
        "float32, rows of 128 of m and 8 more": 1,
        "float64, rows of 64 of m": 4,
        "float64, rows of 64 of m and 2 more": 2,
        "float64, rows of 64 of m and 4 more": 1,
        "columns of 16-bit results, swizzled": 1,
        "rows of float32 results, swizzled": 2,
    }
    # The rows of 004_1.
    layout, length = banks.LAYOUTS["rows of 32 bytes"]
    assert (banks.ldmatrix(layout), banks.fragment(layout)) == (2, 2)
    assert banks.store_rows(layout, length) == 1


def test_columns_of_results_lie_as_the_kernel_packs_them():
    """pack_buffer: swizzle128(column, row / 8) + row % 8 * 2, for rows 2 g and columns 2 t."""
    address = formula("tile/swizzle.cuh", "swizzle128")
    text = (CSRC / "tile/tma_store_columns.cuh").read_text()
    assert "buffer + swizzle128(column, row / 8) + row % 8 * 2" in text
    for lane, place in enumerate(banks.PATTERNS["columns of 16-bit results, swizzled"].addresses):
        row, column = lane // 4 * 2, lane % 4 * 2
        assert place == address(column, row // 8) + row % 8 * 2


def test_the_probe_measures_every_pattern():
    names = [name for row in groups.OPCODES for name in groups.layouts_of(row)]
    assert set(banks.PATTERNS) <= set(names)
    assert "float64, rows of 64 of m" in groups.layouts_of("ld.shared.u64")


def test_the_command_prints_every_layout(capsys):
    assert cli.main(["model", "banks"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*banks.LAYOUTS, *banks.PATTERNS))
    line = next(row for row in text.splitlines() if "rows of 64 of m and 2 more" in row)
    assert line.endswith("LDS.64: 2")
