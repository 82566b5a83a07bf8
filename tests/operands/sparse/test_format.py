"""The operators of the format against its model, bit by bit."""

import itertools

import pytest
import torch
from torch.library import opcheck

import tcgemm  # noqa: F401  (the fakes)

from support import cases
from support import sparse_model as model
from support.cases import BF16, E4M3, E5M2, F16, F32, S8, U8
from support.cpu_model import ISAS, assert_same_digest, with_threads
from support.reference import same_bits
from support.sparse_operands import DTYPES, KINDS, RAGGED, SHAPES, dtypes, kinds, random_matrix

OPS = torch.ops.tcgemm


def check(w, pattern, prune):
    """Compression of w is the model's, and there and back is what pruning leaves."""
    tensors = OPS.compress24(w, pattern, prune)
    for tensor, expected in zip(tensors, model.compress(w, pattern, prune), strict=True):
        assert tensor.is_contiguous() and same_bits(tensor, expected)
    values, metadata, excess = tensors
    k = w.shape[1]
    back = OPS.decompress24(values, metadata, k, pattern)
    assert back.is_contiguous() and same_bits(back, model.decompress(values, metadata, k, pattern))
    pruned = OPS.prune24(w, pattern)
    assert pruned.is_contiguous() and same_bits(pruned, model.prune(w, pattern))
    assert same_bits(OPS.gather24(w, metadata, pattern), values)
    other = random_matrix(*w.shape, w.dtype)
    elements = OPS.gather24(other, metadata, pattern)
    assert elements.is_contiguous() and same_bits(elements, model.gather(other, metadata, pattern))
    if prune:
        assert same_bits(back, pruned)
        for tensor, other in zip(tensors, OPS.compress24(pruned, pattern), strict=True):
            assert same_bits(tensor, other)
    return back, excess.tolist()


def test_the_drawing():
    w = torch.tensor([[5, 0, 0, 7, 0, 0, 9, 0]], dtype=BF16)
    values, metadata, excess = OPS.compress24(w, "2:4")
    assert values.tolist() == [[5, 7, 0, 9]] and metadata.tolist() == [[0b10_00_11_00]]
    assert excess.tolist() == [0, -1]
    values, metadata, _ = OPS.compress24(w[:, :6].float(), "1:2")
    assert values.tolist() == [[5, 7, 0]] and metadata.tolist() == [[0b00_00_01_00]]


@kinds
def test_shapes(dtype, pattern):
    for shape in SHAPES:
        w = random_matrix(*shape, dtype)
        for prune in (False, True):
            check(w, pattern, prune)


@kinds
def test_ragged_rows(dtype, pattern):
    """Positions beside the last column are zeros, and are kept where nothing else is."""
    for k in RAGGED:
        for prune in (False, True):
            check(random_matrix(3, k, dtype), pattern, prune)


@kinds
@pytest.mark.parametrize("strides", list(cases.STRIDES))
def test_strides(dtype, pattern, strides):
    w = cases.make(strides, 37, 301, dtype=dtype)
    check(w, pattern, True)
    assert same_bits(OPS.prune24(w, "2:4", True), model.prune_transposable(w))


@pytest.mark.parametrize("strides", list(cases.STRIDES))
def test_strides_of_values_and_metadata(strides):
    w = random_matrix(35, 531, BF16)
    values, metadata, _ = OPS.compress24(w, "2:4", True)
    stored_values, stored_metadata = (
        cases.empty(strides, x.shape, dtype=x.dtype) for x in (values, metadata)
    )
    if "expanded" not in strides:
        stored_values.copy_(values), stored_metadata.copy_(metadata)
    else:
        cases.fill(stored_values), cases.fill(stored_metadata)
        values, metadata = stored_values.contiguous(), stored_metadata.contiguous()
    back = OPS.decompress24(stored_values, stored_metadata, 531, "2:4")
    assert same_bits(back, OPS.decompress24(values, metadata, 531, "2:4"))
    tiles = OPS.tile24(stored_metadata, 531, "2:4", BF16)
    assert torch.equal(tiles, OPS.tile24(metadata, 531, "2:4", BF16))
    elements = OPS.gather24(w, stored_metadata, "2:4")
    assert same_bits(elements, OPS.gather24(w, metadata, "2:4"))


@dtypes
def test_every_pair_in_every_place(dtype):
    """All six pairs in both halves of a byte."""
    rows = list(itertools.product(model.PAIRS, repeat=2))
    w = torch.zeros(len(rows), 8)
    for row, (low, high) in zip(w, rows, strict=True):
        row[list(low)] = torch.tensor([1.0, 2.0])
        row[[4 + i for i in high]] = torch.tensor([3.0, 4.0])
    w = w.to(dtype)
    values, metadata, excess = OPS.compress24(w, "2:4")
    assert values.float().tolist() == [[1, 2, 3, 4]] * len(rows)
    assert metadata[:, 0].tolist() == [a | b << 2 | c << 4 | d << 6 for (a, b), (c, d) in rows]
    assert excess.tolist() == [0, -1]
    assert same_bits(OPS.decompress24(values, metadata, 8, "2:4"), w)


@kinds
@pytest.mark.parametrize("prune", [False, True])
def test_every_group_of_a_few_numbers(dtype, pattern, prune):
    """Ties, zeros of both signs, too many that are not zero, NaN, Inf, -128."""
    if dtype.is_floating_point:
        numbers = torch.tensor([0.0, -0.0, 1.0, -2.0, float("nan"), -float("inf")])
    else:
        numbers = torch.tensor([0, 1, 127, 128, 255] if dtype is U8 else [0, -1, 127, -128, 1])
    w = torch.cartesian_prod(*[numbers.to(dtype).float()] * model.GROUP[pattern]).to(dtype)
    check(w, pattern, prune)
    check(w.view(5 if w.shape[0] % 5 == 0 else 4, -1), pattern, prune)


def test_words_about_groups():
    """The definition for single groups, in numbers."""
    nan, inf = float("nan"), float("inf")

    def pruned(*group):
        return OPS.prune24(torch.tensor([group], dtype=F32), "2:4")[0].tolist()

    assert pruned(1, 1, 1, 1) == [1, 1, 0, 0]
    assert pruned(1, 2, -2, 2) == [0, 2, -2, 0]
    assert pruned(0.0, -3.0, 0.0, 0.0) == [0, -3, 0, 0]
    assert str(pruned(inf, 1.0, nan, -inf)) == "[inf, 0.0, nan, 0.0]"
    zeros = OPS.prune24(torch.full((1, 4), -0.0), "2:4")
    assert zeros.signbit().tolist() == [[True, True, False, False]]
    small = torch.tensor([[-128, 127, -127, 126]], dtype=S8)
    assert OPS.prune24(small, "2:4").tolist() == [[-128, 127, 0, 0]]
    assert OPS.prune24(small.view(U8), "2:4").view(S8).tolist() == [[-128, 0, -127, 0]]
    metadata = OPS.compress24(torch.tensor([[-0.0, 0.0, 0.0, nan]]), "2:4")[1]
    assert metadata.tolist() == [[0 | 3 << 2]]


@kinds
def test_values_of_all_bits_survive(dtype, pattern):
    """Payloads of NaN and signs of zeros, too."""
    words = torch.randint(-(2**31), 2**31, (64, 300), dtype=torch.int32)
    w = words.view(dtype) if dtype is F32 else words.view(U8).view(dtype)
    back, _ = check(w, pattern, True)
    assert same_bits(back, model.prune(w, pattern))


def test_excess():
    w = OPS.prune24(cases.make("contiguous", 300, 1030, dtype=F16), "2:4")
    assert OPS.compress24(w, "2:4")[2].tolist() == [0, -1]
    for row, column in ((299, 1024), (77, 512), (77, 516), (80, 3), (77, 1029)):
        w[row, column // 4 * 4 : column // 4 * 4 + 4] = 1
    # The last group has two columns, which is not too many.
    assert OPS.compress24(w, "2:4")[2].tolist() == [4, 77 * 1030 + 512]
    assert OPS.compress24(w, "2:4", True)[2].tolist() == [0, -1]
    w = torch.zeros(3, 7)
    w[2, 2:] = 1
    assert OPS.compress24(w, "1:2")[2].tolist() == [2, 2 * 7 + 2]
    assert OPS.compress24(w, "2:4")[2].tolist() == [1, 2 * 7 + 4]


@kinds
def test_empty(dtype, pattern):
    for shape in ((0, 5), (5, 0), (0, 0)):
        w = torch.empty(shape, dtype=dtype)
        back, excess = check(w, pattern, False)
        assert back.shape == shape and excess == [0, -1]
        assert check(w, pattern, True)[1] == [0, -1]
        assert OPS.prune24(w, "2:4", True).shape == shape
        metadata = OPS.compress24(w, pattern)[1]
        if pattern == "1:2" or dtype is not F32:
            tiles = OPS.tile24(metadata, shape[1], pattern, dtype)
            assert torch.equal(tiles, model.tiles(metadata, shape[1], pattern, 8 * dtype.itemsize))


# Transposable pruning.


def test_there_are_90_choices():
    assert len(model.CHOICES) == 90
    assert model.CHOICES[0] == ((0, 1), (0, 1), (2, 3), (2, 3))


@dtypes
def test_transposable(dtype):
    for shape in (*SHAPES, (4, 4), (6, 5), (1, 9)):
        w = random_matrix(*shape, dtype)
        pruned = OPS.prune24(w, "2:4", True)
        assert pruned.is_contiguous() and same_bits(pruned, model.prune_transposable(w))
        for way in (pruned, pruned.t()):
            assert OPS.compress24(way, "2:4")[2].tolist() == [0, -1]


@dtypes
def test_transposable_ties(dtype):
    """Blocks of a few numbers have many best choices: the first one counts."""
    w = torch.randint(0, 3, (256, 260)).to(dtype)
    assert same_bits(OPS.prune24(w, "2:4", True), model.prune_transposable(w))
    first = OPS.prune24(torch.ones(4, 4).to(dtype), "2:4", True).float()
    assert first.tolist() == [[1, 1, 0, 0]] * 2 + [[0, 0, 1, 1]] * 2


def greedy(block):
    """Sum and number of the largest elements, taken while their row and column have room."""
    rows, columns, total = [0] * 4, [0] * 4, 0.0
    for place in block.flatten().argsort(descending=True).tolist():
        row, column = divmod(place, 4)
        if rows[row] < 2 and columns[column] < 2:
            rows[row] += 1
            columns[column] += 1
            total += block[row, column].item()
    return total, sum(rows)


def test_transposable_is_better_than_greedy():
    w = torch.rand(40, 40)
    sums = torch.from_numpy(model.blocks(OPS.prune24(w, "2:4", True).numpy()).sum((2, 3)))
    blocks = torch.from_numpy(model.blocks(w.numpy()))
    bound, count = torch.tensor([[greedy(block) for block in row] for row in blocks]).unbind(-1)
    assert (sums > bound - 1e-5)[count == 8].all()  # sometimes there is room for seven alone
    assert sums.sum() > 1.01 * bound.sum()


def test_transposable_of_the_ends_of_f32():
    """NaN and what is above 2^124 count alike; subnormal numbers count."""
    words = torch.randint(-(2**31), 2**31, (128, 128), dtype=torch.int32).view(F32)
    ends = torch.tensor([float("nan"), float("inf"), 2.0**124, 2.0**127, -(2.0**123), 1.0])
    large = ends[torch.randint(0, len(ends), (64, 64))]
    small = torch.randint(0, 5, (64, 64), dtype=torch.int32).view(F32)
    rounded = 2.0**24 + torch.randint(0, 3, (64, 64)).float()
    for w in (words, large, small, rounded):
        assert same_bits(OPS.prune24(w, "2:4", True), model.prune_transposable(w))


# Tiles.

TILED = [(dtype, "1:2" if dtype is F32 else "2:4") for dtype in DTYPES]


@pytest.mark.parametrize("dtype, pattern", TILED, ids=str)
@pytest.mark.parametrize("rows, k", [(1, 1), (16, 64), (17, 130), (63, 33), (65, 257), (200, 515)])
def test_tiles(dtype, pattern, rows, k):
    for extra in range(3):
        metadata = OPS.compress24(random_matrix(rows, k + extra, dtype), pattern, True)[1]
        tiles = OPS.tile24(metadata, k + extra, pattern, dtype)
        expected = model.tiles(metadata, k + extra, pattern, 8 * dtype.itemsize)
        assert tiles.dtype is U8 and tiles.is_contiguous() and torch.equal(tiles, expected)


def words_of(tiles):
    return [word & 0xFFFFFFFF for word in tiles.view(torch.int32).tolist()]


def test_one_tile_by_hand():
    """Rows 2 and 3 of 16, bf16: lane 4 has the first four groups of both in its one word."""
    w = torch.zeros(4, 64, dtype=BF16)
    w[2, [2, 3, 4, 7, 9, 10, 12, 14]] = 1  # pairs 23, 03, 12, 02
    w[3, [1, 3]] = 1
    words = words_of(OPS.tile24(OPS.compress24(w, "2:4")[1], 64, "2:4", BF16))
    assert len(words) == (1 + 8) * 128
    assert words[4] == 0x444D_89CE
    assert set(words[:4] + words[5:]) == {model.NO_GROUPS}
    # 8 bits: a word holds eight groups of one row; row 3 is in the next lane.
    words = words_of(OPS.tile24(OPS.compress24(w.to(S8), "2:4")[1], 64, "2:4", S8))
    assert words[8] == 0x4444_89CE and words[10] == 0x4444_444D
    # Positions of f32 are pairs of halves.
    metadata = OPS.compress24(torch.tensor([[0.0, 1.0, 1.0, 0.0]]), "1:2")[1]
    assert words_of(OPS.tile24(metadata, 4, "1:2", F32))[0] == 0x4444_444E


def test_what_is_beside_the_last_position_does_not_matter():
    metadata = OPS.compress24(random_matrix(5, 68, F16), "2:4", True)[1]
    other = metadata.clone()
    other[:, -1] |= 0xF0
    assert not torch.equal(metadata, other)
    assert torch.equal(OPS.tile24(other, 68, "2:4", F16), OPS.tile24(metadata, 68, "2:4", F16))


# Threads, instruction sets, torch.


def all_results():
    """The same in every process."""
    torch.manual_seed(7)
    for dtype, pattern in KINDS:
        w = random_matrix(300, 1100, dtype)
        yield from OPS.compress24(w, pattern)
        values, metadata, _ = OPS.compress24(w, pattern, True)
        yield values
        yield OPS.decompress24(values, metadata, 1100, pattern)
        yield OPS.prune24(w, "2:4", True)
        if (dtype, pattern) != (F32, "2:4"):
            yield OPS.tile24(metadata, 1100, pattern, dtype)


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_gives_the_same_bits(isa):
    assert_same_digest(isa, __file__, all_results())


def test_every_number_of_threads_gives_the_same_bits():
    first, *others = with_threads(lambda: list(all_results()), (1, 2, 7))
    for other in others:
        assert all(same_bits(x, y) for x, y in zip(first, other, strict=True))


@kinds
def test_opcheck(dtype, pattern):
    """test_schema compares tensors by an arithmetic that torch has not for float8."""
    names = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    names = names if dtype in (E4M3, E5M2) else ("test_schema", *names)
    for shape in ((5, 4), (3, 131), (0, 9)):
        w = cases.make("contiguous", *shape, dtype=dtype)
        for x in (w, w.t()):
            k = x.shape[1]
            values, metadata, _ = OPS.compress24(x, pattern, True)
            opcheck(OPS.compress24.default, (x, pattern), {"prune": True}, test_utils=names)
            opcheck(OPS.decompress24.default, (values, metadata, k, pattern), test_utils=names)
            opcheck(OPS.gather24.default, (x, metadata, pattern), test_utils=names)
            opcheck(OPS.prune24.default, (x, pattern), test_utils=names)
            opcheck(OPS.prune24.default, (x, "2:4", True), test_utils=names)
            if (dtype, pattern) != (F32, "2:4"):
                opcheck(OPS.tile24.default, (metadata, k, pattern, dtype), test_utils=names)


def test_results_carry_no_derivatives():
    w = torch.randn(5, 12, requires_grad=True)
    values, metadata, excess = OPS.compress24(w, "2:4", True)
    back = OPS.decompress24(values + 0 * w[:, :6], metadata, 12, "2:4")
    for out in (values, metadata, excess, back, OPS.prune24(w, "2:4")):
        assert not out.requires_grad
    opcheck(OPS.prune24.default, (w, "1:2"))
    opcheck(OPS.compress24.default, (w, "1:2", True))

    def loss(w):
        return (OPS.prune24(w, "2:4") * w).sum()

    assert torch.equal(torch.func.grad(loss)(w.detach()), back)


def test_vmap_is_one_example_after_another():
    w = torch.randn(3, 6, 10, dtype=BF16)

    def function(w):
        values, metadata, excess = OPS.compress24(w, "2:4", prune=True)
        back = OPS.decompress24(values, metadata, 10, "2:4")
        return OPS.tile24(metadata, 10, "2:4", BF16), excess, back, OPS.prune24(w, "2:4", True)

    for dim, examples in enumerate((w, w.transpose(0, 1).contiguous())):
        together = torch.vmap(function, dim)(examples)
        for index, example in enumerate(w):
            for out, expected in zip(together, function(example), strict=True):
                assert torch.equal(out[index], expected)


@kinds
def test_meta(dtype, pattern):
    for rows, k in ((5, 4), (3, 131), (65, 1), (0, 0), (700, 258)):
        w = torch.empty(rows, k, dtype=dtype)
        values, metadata, excess = OPS.compress24(w.to("meta"), pattern)
        real = OPS.compress24(w, pattern)
        for tensor, other in zip((values, metadata, excess), real, strict=True):
            assert tensor.shape == other.shape and tensor.dtype is other.dtype
        assert OPS.decompress24(values, metadata, k, pattern).shape == w.shape
        if (dtype, pattern) != (F32, "2:4"):
            tiles = OPS.tile24(metadata, k, pattern, dtype)
            assert tiles.shape == OPS.tile24(real[1], k, pattern, dtype).shape


def test_compile():
    def there_and_back(w):
        values, metadata, excess = OPS.compress24(w * 2, "2:4", True)
        tiles = OPS.tile24(metadata, w.shape[1], "2:4", w.dtype)
        return OPS.decompress24(values, metadata, w.shape[1], "2:4"), excess, tiles

    compiled = torch.compile(there_and_back, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape in ((8, 16), (33, 67), (70, 131)):
        w = torch.randn(shape, dtype=BF16)
        for tensor, other in zip(compiled(w), there_and_back(w), strict=True):
            assert same_bits(tensor, other)
