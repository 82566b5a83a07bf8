"""Bank conflicts of the steps: known values, and a simulation lane by lane that shares no code.

The simulation follows the kernels line by line: threads, the address of each access, and how many
different words of one bank a phase touches.
"""

import itertools
import re
from collections import defaultdict

import pytest

from tcgemm.lab.ladder import conflicts, hgemm_tile, sources
from tcgemm.lab.ladder.steps import STEPS


def ways(threads, address, width, first=0):
    """The most different words of a bank in a phase; address(thread) in bytes."""
    lanes = {2: 32, 4: 32, 8: 16, 16: 8}[width]
    worst = 0
    for start in range(first, first + threads, lanes):
        banks = defaultdict(set)
        for thread in range(start, start + lanes):
            for byte in range(address(thread), address(thread) + width):
                banks[byte // 4 % 32].add(byte // 4)
        worst = max(worst, max(len(words) for words in banks.values()))
    return worst


# Known values.


@pytest.mark.parametrize("tile", [32, 64, 96, 128])
def test_the_padding_of_the_document_that_is_fastest_has_no_conflicts(tile):
    """The document has 6.3, 8.2, 9.2 and 8.2 TFLOP/s for 32x32, in this order of paddings."""
    results = [conflicts.of("001_5_shared_a", (tile, pad)) for pad in (0, 2, 4, 6)]
    assert [counts["LDS a"] for counts in results] == [4, 2, 1, 2]
    assert {counts["STS a"] for counts in results} == {1}


EXPECTED = {
    "002_1_block": {"STS": 1, "LDS.128 a": 4, "LDS b": 1},
    "002_2_thread": {"STS": 1, "LDS.128 a": 4, "LDS b": 1},
    "002_3_thread2d": {"STS": 1, "LDS a": 8, "LDS.128 b": 1},
    "002_6_edges": {"STS.U16": 1, "ldmatrix a": 2, "ldmatrix b": 2},
    "003_baseline": {"STS.128": 1, "ldmatrix a": 8, "ldmatrix b": 8},
    "003_pipeline": {"cp.async": 1, "ldmatrix a": 8, "ldmatrix b": 8},
    "003_permuted": {"STS.128": 1, "ldmatrix a": 1, "ldmatrix b": 1},
    "003_both": {"cp.async": 1, "ldmatrix a": 1, "ldmatrix b": 1},
    "004_1_0": {"STS.U16": 1, "LDS a": 2, "LDS b": 2},
    "004_1_1": {"STS.U16": 1, "LDS a": 2, "LDS b": 2},
    "004_2_0": {"STS.128": 1, "ldmatrix a": 1, "ldmatrix b": 1},
    "004_2_1": {"STS.128": 1, "ldmatrix a": 1, "ldmatrix b": 1},
}


@pytest.mark.parametrize("step", EXPECTED)
def test_steps_of_one_variant(step):
    assert conflicts.of(step) == EXPECTED[step]


def test_padding_of_the_hgemm_removes_the_conflicts_of_its_fragments():
    plain = [number for number, tile in enumerate(hgemm_tile.TILES) if not tile.padded]
    assert plain == [7]
    assert conflicts.of("000_hgemm", (7,)) == {"STS.128": 1, "LDS a": 4, "LDS b": 4}
    for number in set(range(len(hgemm_tile.TILES))) - {7}:
        assert set(conflicts.of("000_hgemm", (number,)).values()) == {1}
    assert set(conflicts.of("000_hgemm", (10,))) == {"STS.128", "ldmatrix a", "ldmatrix b"}


@pytest.mark.parametrize("step", ["004_3_0", "004_3_1", "004_3_2_outside", "001_6_shared_ab"])
def test_the_last_steps_have_no_conflicts(step):
    _, ranges = conflicts.STEPS[step]
    for parameters in itertools.product(*ranges):
        assert set(conflicts.of(step, parameters).values()) == {1}, parameters


def test_every_step_has_an_answer():
    others = [step for step in sources.names() if step not in conflicts.STEPS]
    assert set(conflicts.STEPS) <= set(sources.names())
    for step in others:
        assert conflicts.of(step) == {}
        assert "__shared__" not in sources.source(step)
    for step in conflicts.STEPS:
        assert "__shared__" in sources.source(step)


def test_every_variant_has_an_answer():
    variants = [(step, variant) for step in STEPS for variant in step.variants]
    assert len(variants) > 100
    for step, variant in variants:
        counts = conflicts.of(step.name, variant.parameters)
        assert bool(counts) is (step.name in conflicts.STEPS)


# The simulation.


def offset_128(row, chunk, permuted):
    return row * 128 + (chunk ^ row % 8 if permuted else chunk) * 16


@pytest.mark.parametrize(("step", "permuted"), [("003_baseline", False), ("003_both", True)])
def test_003_lane_by_lane(step, permuted):
    worst_a = worst_b = copies = 0
    for product, i in itertools.product(range(4), range(2)):

        def address_a(thread, product=product, i=i):
            lane, warp = thread % 32, thread // 32
            row = warp // 2 * 32 + lane % 16
            return offset_128(row + 16 * i, 2 * product + lane // 16, permuted)

        def address_b(thread, product=product, i=i):
            lane, warp = thread % 32, thread // 32
            column = warp % 2 * 32 + lane % 8 + lane // 16 * 8
            return offset_128(column + 16 * i, 2 * product + lane // 8 % 2, permuted)

        worst_a = max(worst_a, ways(128, address_a, 16))
        worst_b = max(worst_b, ways(128, address_b, 16))
    for i in range(0, 64, 16):
        copies = max(copies, ways(128, lambda t, i=i: offset_128(t // 8 + i, t % 8, permuted), 16))
    assert list(conflicts.of(step).values()) == [copies, worst_a, worst_b]


@pytest.mark.parametrize(("tiles", "step"), [(1, "004_1_0"), (2, "004_1_1")])
def test_004_1_lane_by_lane(tiles, step):
    loads = {"LDS a": 0, "LDS b": 0}
    for tile, lower, depth in itertools.product(range(tiles), (0, 8), (0, 8)):

        def address(thread, own, first, depth=depth):
            group, t = thread % 32 // 4, thread % 4
            return 2 * ((own + first + group) * 16 + 2 * t + depth)

        def address_a(thread, first=16 * tile + lower, address=address):
            return address(thread, thread // 32 // 4 * 16 * tiles, first)

        def address_b(thread, first=8 * tile, address=address):
            return address(thread, thread // 32 % 4 * 8 * tiles, first)

        loads["LDS a"] = max(loads["LDS a"], ways(256, address_a, 4))
        loads["LDS b"] = max(loads["LDS b"], ways(256, address_b, 4))
    stores = ways(256, lambda i: 2 * (i // 16 * 16 + i % 16), 2)
    assert conflicts.of(step) == {"STS.U16": stores, **loads}


def test_004_2_lane_by_lane():
    def offset(row, chunk):
        return row * 64 + (chunk ^ row // 2 % 4) * 16

    stores = ways(256, lambda i: offset(i // 4, i % 4), 16)
    loads = 0
    for product, i in itertools.product(range(2), range(2)):

        def address(thread, product=product, i=i):
            warp, lane = thread // 32, thread % 32
            return offset(warp // 4 * 32 + lane % 16 + 16 * i, 2 * product + lane // 16)

        loads = max(loads, ways(256, address, 16))
    counts = conflicts.of("004_2_1")
    assert (counts["STS.128"], counts["ldmatrix a"]) == (stores, loads)


@pytest.mark.parametrize("tile", [32, 96])
@pytest.mark.parametrize("padding", [0, 2, 4, 6])
def test_001_5_lane_by_lane(tile, padding):
    """wmma.load of a column-major 8x4 fragment: lane 4 g + t reads row g of column t."""
    pitch, worst = tile + padding, 0
    for r in range(tile // 8):
        worst = max(worst, ways(32, lambda i, r=r: 8 * (r * 8 + i // 4 + i % 4 * pitch), 8))
    stores = ways(4 * tile, lambda i: 8 * (i % tile + i // tile * pitch), 8)
    counts = conflicts.of("001_5_shared_a", (tile, padding))
    assert counts == {"STS a": stores, "LDS a": worst}


def test_002_lane_by_lane():
    """Four adjacent elements of a row in one LDS.128, as the machine code has them."""
    worst = max(ways(256, lambda t, i=i: 4 * (t % 16 * 16 + i), 16) for i in range(0, 16, 4))
    assert conflicts.of("002_1_block")["LDS.128 a"] == worst
    assert max(ways(256, lambda t, i=i: 4 * (t % 16 * 16 + i), 4) for i in range(16)) == 8
    worst = max(
        ways(64, lambda t, i=i, r=r: 4 * ((t % 8 * 8 + r) * 64 + i), 4)
        for i in range(64)
        for r in range(8)
    )
    assert conflicts.of("002_3_thread2d")["LDS a"] == worst


@pytest.mark.parametrize("number", range(len(hgemm_tile.TILES)))
def test_000_lane_by_lane(number):
    tile = hgemm_tile.TILES[number]

    def offset(row, column):
        return 2 * (row * tile.k + (row * tile.k // 64 * 8 if tile.padded else 0) + column)

    chunks, threads = tile.k // 8, tile.m // tile.warp_m * (tile.n // tile.warp_n) * 32
    lines = threads // chunks
    copies = max(
        ways(threads, lambda t, i=i: offset(t // chunks, t % chunks * 8) + offset(i * lines, 0), 16)
        for i in range((tile.m + tile.n) // lines)
    )
    warps_m, loads = tile.m // tile.warp_m, {"a": 0, "b": 0}
    for step in range(tile.k // 8):
        for matrix, blocks in (("a", tile.warp_m // 8), ("b", tile.warp_n // 8)):

            def lane_offset(thread, matrix=matrix):
                warp, lane = thread // 32, thread % 32
                own = warp % warps_m * tile.warp_m
                row = own if matrix == "a" else tile.m + warp // warps_m * tile.warp_n
                if tile.ldmatrix:
                    return offset(row + lane, 0)
                return offset(row + lane // 4, lane % 4 * 2)

            for i in range(0, blocks, 4 if tile.ldmatrix else 1):
                at = offset(8 * i, 0) + step * 16
                width = 16 if tile.ldmatrix else 4
                count = ways(threads, lambda t, at=at, lane=lane_offset: lane(t) + at, width)
                loads[matrix] = max(loads[matrix], count)
    assert list(conflicts.of("000_hgemm", (number,)).values()) == [copies, loads["a"], loads["b"]]


# Arguments, and the table of tiles.


def test_tiles_are_those_of_the_kernel():
    texts = re.findall(r"launch_tile<(\d[\d, ]+)>", sources.source("000_hgemm"))
    assert [tuple(map(int, text.split(","))) for text in texts] == [
        tuple(tile)[: text.count(",") + 1]
        for text, tile in zip(texts, hgemm_tile.TILES, strict=True)
    ]
    defaults = hgemm_tile.HgemmTile(1, 1, 1, 1, 1)
    header = (sources.folder() / "000_tile.cuh").read_text()
    assert "bool padded = true, int distance = 5,\n          bool ldmatrix = false>" in header
    assert (defaults.padded, defaults.distance, defaults.ldmatrix) == (1, 5, 0)
    for text, tile in zip(texts, hgemm_tile.TILES, strict=True):
        assert tuple(tile)[text.count(",") + 1 :] == tuple(defaults)[text.count(",") + 1 :]


@pytest.mark.parametrize(
    ("step", "parameters"),
    [("001_5_shared_a", (32, 3)), ("001_5_shared_a", (32,)), ("000_hgemm", (11,))],
)
def test_an_unknown_variant_is_named(step, parameters):
    sentence = rf"^{step} has no variant with the parameters {re.escape(str(parameters))}\.$"
    with pytest.raises(ValueError, match=sentence):
        conflicts.of(step, parameters)


def test_an_unknown_step_is_named():
    with pytest.raises(ValueError, match="step is '005'; expected one of 000_hgemm"):
        conflicts.of("005")
