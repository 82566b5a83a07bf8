"""Calls of emulate.mma that cannot be answered get a sentence; unusual ones an answer."""

import ctypes
from pathlib import Path

import pytest
import torch

import tcgemm
from tcgemm import emulate
from tcgemm.emulate import lab_library

from support.programs import last_error

ROW = "mma.m16n8k16.f32.f16.f16"
SPARSE = "mma.sp.m16n8k32.f32.f16.f16"
S4, B1 = "mma.m16n8k64.s32.s4.s4", "mma.m16n8k256.s32.b1.b1.xor.popc"
INTS = torch.arange(256).reshape(1, 256).remainder(9).to(torch.int8)
ONES = torch.ones(1, 256, dtype=torch.bool)


def half(*shape):
    return torch.randn(shape).half()


def call(a=(16, 16), b=(16, 8), **options):
    a, b = (half(*x) if isinstance(x, tuple) else x for x in (a, b))
    return emulate.mma(a, b, **{"instruction": ROW, **options})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"instruction": "mma.k16"}, ValueError, "Hopper has none of that name; close ones are"),
        ({"instruction": ROW[:-4]}, ValueError, r"close ones are mma\.m16n8k16\.f32\.f16\.f16, "),
        ({"instruction": None}, ValueError, r"emulate\.instructions\('Hopper'\) lists all"),
        ({"arch": "Pascal"}, ValueError, "arch is 'Pascal'; expected one of Volta, Turing"),
        ({"arch": None}, ValueError, "arch is None; expected one of"),
        ({"arch": "Volta"}, ValueError, "Volta has no instruction mma.m16n8k16.f32.f16.f16; these"),
        ({"a": [1.0]}, TypeError, "a is a list, but it must be a tensor"),
        ({"a": torch.ones(16, 16)}, TypeError, r"takes torch.float16; convert it with a\.to"),
        ({"b": torch.ones(16, 8).bfloat16()}, TypeError, "b has dtype torch.bfloat16"),
        ({"c": half(16, 8)}, TypeError, "c has dtype torch.float16"),
        ({"a": (16,)}, ValueError, "at least two dimensions"),
        ({"a": (16, 24)}, ValueError, "24 columns, but .* reads 16 at a time"),
        ({"b": (8, 8)}, ValueError, r"needs \(16, N\)"),
        ({"a": (3, 16, 16)}, ValueError, r"needs \(3, 16, N\)"),
        ({"c": torch.zeros(8, 16)}, ValueError, r"the result has \(16, 8\)"),
        ({"satfinite": True}, ValueError, "satfinite is for integers"),
        ({"metadata": torch.zeros(16, 4)}, ValueError, "is dense"),
        (
            {"instruction": S4, "a": INTS, "b": INTS.t()},
            ValueError,
            "from 0 to 8, but s4 has -8 to 7",
        ),
        ({"instruction": B1, "a": INTS, "b": INTS.t()}, TypeError, "takes torch.bool"),
        (
            {"instruction": B1, "a": ONES, "b": ONES.t(), "satfinite": True},
            ValueError,
            "no such form",
        ),
        ({"instruction": SPARSE, "b": (32, 8)}, ValueError, r"None, but .* torch.uint8 \(16, 4\)"),
    ],
)
def test_a_sentence_for(options, error, words):
    with pytest.raises(error, match=words):
        call(**options)


def test_wmma_of_tf32_is_two_instructions():
    """ptxas makes two m16n8k4 of it on every GPU, but one instruction of mma.m16n8k8 on Hopper."""
    a, b = torch.randn(16, 64).half().float(), torch.randn(64, 8).half().float()
    row = "wmma.m16n16k8.f32.tf32.tf32"
    result = emulate.mma(a, b, instruction=row)
    assert torch.equal(result, emulate.mma(a, b, instruction="mma.m16n8k4.f32.tf32.tf32"))
    assert not torch.equal(result, emulate.mma(a, b, instruction="mma.m16n8k8.f32.tf32.tf32"))


def test_pairs_of_four_bits_share_a_position():
    a = torch.arange(-8, 8, dtype=torch.int8).repeat(2).reshape(1, 32)
    b = torch.zeros(64, 1, dtype=torch.int8)
    b[2:4] = torch.tensor([[1], [3]], dtype=torch.int8)  # the second pair of the first group
    row = "mma.sp.m16n8k64.s32.s4.s4"
    metadata = torch.full((1, 4), 0b11011101, dtype=torch.uint8)  # positions 1 and 3
    assert emulate.mma(a, b, instruction=row, metadata=metadata) == -8 * 1 + -7 * 3
    metadata = torch.full((1, 4), 0b11101110, dtype=torch.uint8)  # positions 2 and 3
    assert emulate.mma(a, b, instruction=row, metadata=metadata) == 0


def test_positions_have_to_ascend():
    equal = torch.zeros(16, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="not ascending within a group of 4"):
        call(b=(32, 8), instruction=SPARSE, metadata=equal)
    two = torch.full((16, 2), 0b10101010, dtype=torch.uint8)
    with pytest.raises(ValueError, match="not ascending within a group of 2"):
        emulate.mma(
            torch.ones(16, 8),
            torch.ones(16, 8),
            instruction="mma.sp.m16n8k16.f32.tf32.tf32",
            metadata=two,
        )


def test_the_format_of_a_compressed_tensor():
    w = tcgemm.prune24(half(24, 64))
    sparse = tcgemm.compress24(w)
    b = half(64, 5)
    row = "wgmma.sp.m64nNk32.f32.f16.f16"
    result = emulate.mma(sparse.values, b, instruction=row, metadata=sparse.metadata)
    # A block of the sparse instruction has the products of two dense ones.
    torch.testing.assert_close(result, (w.double() @ b.double()).float(), rtol=1e-5, atol=1e-5)
    w = tcgemm.prune24(torch.randn(24, 64), pattern="1:2")
    sparse = tcgemm.compress24(w, pattern="1:2")
    b = torch.randn(64, 5)
    row = "wgmma.sp.m64nNk16.f32.tf32.tf32"
    result = emulate.mma(sparse.values, b, instruction=row, metadata=sparse.metadata)
    torch.testing.assert_close(result, w @ b, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 8, 16), (16, 0, 16), (16, 8, 0), (1, 1, 16)])
def test_sizes(m, n, k):
    c = torch.randn(m, n)
    result = call((m, k), (k, n), c=c)
    assert result.shape == (m, n) and (k or torch.equal(result, c))


def test_batches_and_strides():
    a, b = half(2, 3, 32, 5).mT, half(2, 3, 7, 32).mT
    c = torch.randn(3, 2, 7, 5).permute(1, 0, 3, 2)
    result = emulate.mma(a, b, c, instruction=ROW)
    assert result.shape == (2, 3, 5, 7)
    single = emulate.mma(
        a[1, 2].contiguous(), b[1, 2].contiguous(), c[1, 2].contiguous(), instruction=ROW
    )
    assert torch.equal(result[1, 2], single)


def test_columns_that_are_decoded_in_parts():
    """The library decodes 2^22 elements of b at a time."""
    a, b = half(2, 2**20), half(2**20, 9)
    result = emulate.mma(a, b, instruction=ROW)
    assert torch.equal(result[:, 8:], emulate.mma(a, b[:, 8:], instruction=ROW))
    assert torch.equal(result[:, 3:5], emulate.mma(a, b[:, 3:5], instruction=ROW))


def test_threads_do_not_matter():
    a, b = half(33, 64), half(64, 9)
    first = emulate.mma(a, b, instruction=ROW)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 4)
        assert torch.equal(emulate.mma(a, b, instruction=ROW), first)
    finally:
        torch.set_num_threads(threads)


def test_instructions_are_listed():
    rows = emulate.instructions("hopper")
    assert {row.arch for row in rows} == {"Hopper"}
    assert {row.family for row in rows} == {"mma", "mma.sp", "wgmma", "wgmma.sp", "wmma"}
    assert len({(row.arch, row.name) for row in emulate.instructions()}) == len(
        emulate.instructions()
    )
    assert {row.arch for row in emulate.instructions()} == set(emulate.table.GPUS)
    with pytest.raises(ValueError, match="expected one of Volta"):
        emulate.instructions("Blackwell")


@pytest.mark.gpu
def test_result_is_on_the_device_of_a():
    a, b = half(16, 16), half(16, 8)
    result = call(a.cuda(), b.cuda())
    assert result.is_cuda and torch.equal(result.cpu(), call(a, b))


def test_the_library_is_loaded_on_first_use(tmp_path):
    missing = str(tmp_path / "libtcgemm_lab.so")
    code, line = last_error("import tcgemm; tcgemm.emulate", TCGEMM_LAB_LIBRARY=missing)
    assert code == 0, line
    code, line = last_error(
        "import tcgemm; tcgemm.emulate.instructions()", TCGEMM_LAB_LIBRARY=missing
    )
    assert code == 1 and f"{missing} (from TCGEMM_LAB_LIBRARY), which is not there" in line
    assert "TCGEMM_BUILD_LAB=0" in line


@pytest.mark.parametrize(
    ("text", "words"), [(True, "could not be loaded"), (False, "of another version")]
)
def test_another_library_is_refused(tmp_path, text, words):
    file = Path(torch.__file__).parent / "lib" / "libc10.so"
    if text:
        file = tmp_path / "libtext.so"
        file.write_text("no library")
    code, line = last_error(
        "import tcgemm; tcgemm.emulate.instructions()", TCGEMM_LAB_LIBRARY=str(file)
    )
    assert code == 1 and words in line and "setup.py" in line


def test_another_layout_of_a_structure_is_refused():
    class Shorter(ctypes.Structure):
        _fields_ = [("k", ctypes.c_int64)]

    with pytest.raises(ImportError, match="of another version than this package"):
        lab_library.function("mma", Shorter)
    with pytest.raises(ImportError, match="of another version than this package"):
        lab_library.function("mmma", Shorter)
