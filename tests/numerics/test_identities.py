"""The table of docs/numerics/same-bits.md: what has the same bits, and what has not.

The emulator has the bits of a GPU (tests/emulate); on a GPU the same is asked of tcgemm.mm.
"""

import pytest
import torch

import tcgemm
from tcgemm import emulate, info

from support.reference import same_bits

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, E4M3, E5M2, torch.int8)
BLOCK = {torch.float16: 16, torch.bfloat16: 16, torch.float32: 8, E4M3: 32, E5M2: 32}
WORDS = {torch.float32: "high", E4M3: "fast", E5M2: "fast"}
FLOATS = tuple(BLOCK)


def drawn(shape, dtype):
    if dtype is torch.int8:
        return torch.randint(-128, 128, shape).to(dtype)
    return torch.randn(shape).to(dtype)


@pytest.fixture
def invariant():
    """Products of different sizes have one slice of k each."""
    with tcgemm.batch_invariant():
        yield


def on_h200(a, b, **options):
    """The bits of tcgemm.mm, with results as wide as the sums."""
    options.setdefault("precision", WORDS.get(a.dtype))
    if a.dtype in FLOATS:
        options.setdefault("out_dtype", torch.float32)
    return emulate.mm(a, b, **options)


def kernels(dtype, k):
    """One kernel of each tile and each family of the dtype, by name."""
    a, b = (torch.empty(256, k, dtype=dtype, device="meta") for _ in range(2))
    word = WORDS.get(dtype)
    input_type = "tf32" if dtype is torch.float32 else tcgemm.dtypes.short_name(dtype)
    by_tile = {}
    for row in info.catalog():
        names = (row["input"], row["input_b"], row["layout"], row["sparse"], row["promoted"])
        if names != (input_type, input_type, "TN", "", False) or row["terms"] > 1:
            continue
        if row["weight_bits"] or row["columns_only"]:
            continue
        if row["accumulator"] != "f16" and row["arch"] != "sm89" and not row["gemv"]:
            by_tile[row["arch"], row["tile"][:2]] = row["name"]
    usable = []
    for name in by_tile.values():
        try:
            tcgemm.explain(a, b.t(), precision=word, kernel=name, device="H200")
        except RuntimeError:
            continue
        usable.append(name)
    return usable


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tiles_and_kernels(dtype):
    """Every tile has the same bits, and mma.sync has the bits of wgmma."""
    a, b = drawn((40, 336), dtype), drawn((24, 336), dtype).t()
    results = {name: on_h200(a, b, kernel=name) for name in kernels(dtype, 336)}
    assert len(results) >= 3
    for arch in ("sm90a", "sm80"):
        of_arch = [result for name, result in results.items() if name.startswith(arch)]
        assert all(same_bits(result, of_arch[0]) for result in of_arch)
    firsts = {name.split("_")[0]: result for name, result in results.items()}
    if dtype not in (E4M3, E5M2, torch.float64):  # these have no such kernels for an H200
        assert same_bits(firsts["sm90a"], firsts["sm80"])


@pytest.mark.usefixtures("invariant")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_other_rows_do_not_matter(dtype):
    a, b = drawn((130, 512), dtype), drawn((64, 512), dtype).t()
    result = on_h200(a, b)
    assert same_bits(on_h200(a[:1], b), result[:1])
    assert same_bits(on_h200(a[17:90], b[:, :24]), result[17:90, :24])
    batch = on_h200(a.unflatten(0, (2, 65)), b.expand(2, *b.shape).contiguous())
    assert same_bits(batch.flatten(0, 1), result)


def test_other_rows_change_the_slices():
    """Outside of batch_invariant() the slices of a long k depend on the number of rows."""
    a, b = drawn((300, 32768), torch.bfloat16), drawn((40, 32768), torch.bfloat16).t()
    slices = [tcgemm.explain(a[:rows], b, device="H200").slices for rows in (40, 300)]
    assert slices[0] != slices[1]
    assert not same_bits(on_h200(a[:40], b), on_h200(a, b)[:40])
    with tcgemm.batch_invariant():
        assert same_bits(on_h200(a[:40], b), on_h200(a, b)[:40])


def test_a_gemv_kernel_has_an_order_of_its_own():
    a, b = drawn((64, 4096), torch.bfloat16), drawn((4096, 4096), torch.bfloat16).t()
    assert tcgemm.explain(a[:4], b, device="H200").kernel.endswith("_gemv")
    assert not same_bits(on_h200(a[:4], b), on_h200(a, b)[:4])
    with tcgemm.batch_invariant():
        assert same_bits(on_h200(a[:4], b), on_h200(a, b)[:4])


@pytest.mark.usefixtures("invariant")
def test_float32_is_one_way():
    """Outside, the planner takes float64 or terms by the sizes."""
    a, b = drawn((200, 1024), torch.float32), drawn((640, 1024), torch.float32).t()
    result = on_h200(a, b, precision="highest")
    assert same_bits(on_h200(a[:1], b, precision="highest"), result[:1])
    assert same_bits(on_h200(a[70:], b[:, :9], precision="highest"), result[70:, :9])


@pytest.mark.usefixtures("invariant")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_transpose(dtype):
    a, b = drawn((48, 512), dtype), drawn((64, 512), dtype).t()
    assert same_bits(on_h200(b.t(), a.t()).t(), on_h200(a, b))


@pytest.mark.usefixtures("invariant")  # no GEMV kernel, which reads k in another order
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_order_of_k(dtype):
    """Products of one step may change places, others may not."""
    a, b = drawn((32, 256), dtype), drawn((32, 256), dtype)
    step = BLOCK[dtype]
    order = torch.cat([torch.randperm(step) + start for start in range(0, 256, step)])
    first = on_h200(a, b.t())
    assert same_bits(on_h200(a[:, order], b[:, order].t()), first)
    steps = torch.arange(256).unflatten(0, (-1, step)).flip(0).flatten()
    assert not same_bits(on_h200(a[:, steps], b[:, steps].t()), first)


@pytest.mark.usefixtures("invariant")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zeros_after_and_before_k(dtype):
    a, b = drawn((32, 128), dtype), drawn((32, 128), dtype)
    step = BLOCK[dtype]
    first = on_h200(a, b.t())

    def padded(x, before, after):
        return torch.nn.functional.pad(x.float(), (before, after)).to(dtype)

    for before, after in ((0, 128), (step, 0), (5 * step, step)):
        wider = on_h200(padded(a, before, after), padded(b, before, after).t())
        assert same_bits(wider, first)
    if dtype is not E5M2:  # 32 products of two bits of fraction: nothing is cut
        shift = on_h200(padded(a, 3, 5), padded(b, 3, 5).t())
        assert not same_bits(shift, first)  # a shift by less than a step makes other steps


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float64), ids=str)
def test_signs_and_powers_of_two(dtype):
    a, b = drawn((32, 256), dtype), drawn((32, 256), dtype).t()
    first = on_h200(a, b)
    assert (first != 0).all()
    assert same_bits(-on_h200((-a.double()).to(dtype), b), first)
    if dtype in (torch.float32, torch.bfloat16, torch.float64):  # the range is wide enough
        assert same_bits(on_h200(a * 2**20, b) * 2.0**-20, first)


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@pytest.mark.usefixtures("invariant")  # no GEMV kernel, whose sums are as accurate in both modes
def test_promoted_sums_of_at_most_128_products(dtype):
    for k, equal in ((128, True), (256, False)):
        a, b = drawn((64, k), dtype), drawn((64, k), dtype).t()
        fast, promoted = (on_h200(a, b, precision=word) for word in ("fast", "promoted"))
        assert same_bits(fast, promoted) == equal


def test_a_c_is_not_the_start_of_the_sum():
    """Two parts of K, the second with the first as c, are not the whole."""
    a, b = drawn((64, 512), torch.float16), drawn((64, 512), torch.float16).t()
    first = on_h200(a[:, :192], b[:192])
    assert not same_bits(on_h200(a[:, 192:], b[192:], c=first), on_h200(a, b))


def test_float8_of_mma_sync():
    """It is widened to float16 on Hopper, and keeps more bits than wgmma."""
    a, b = drawn((16, 64), E4M3), drawn((64, 8), E4M3)
    names = ("mma.m16n8k32.f32.e4m3.e4m3", "wgmma.m64nNk32.f32.e4m3.e4m3")
    assert not same_bits(*(emulate.mma(a, b, instruction=name) for name in names))


def test_sparse_and_dense():
    w = tcgemm.prune24(drawn((64, 512), torch.float16))
    b = drawn((32, 512), torch.float16).t()
    assert not same_bits(on_h200(tcgemm.compress24(w), b), on_h200(w, b))


@pytest.mark.usefixtures("invariant")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_generations(dtype):
    a, b = drawn((64, 512), dtype), drawn((64, 512), dtype).t()
    ampere, hopper = on_h200(a, b, device="A100"), on_h200(a, b)
    assert not same_bits(ampere, hopper)
    assert same_bits(ampere, on_h200(a, b, device="L40S"))
    assert same_bits(hopper, on_h200(a, b, device="H100"))


@pytest.mark.usefixtures("invariant")
@pytest.mark.parametrize("shape", [(48, 40, 512), (7, 9, 333), (1, 1, 1), (65, 3, 16)])
def test_float64_and_integers_are_those_of_the_cpu(shape):
    m, n, k = shape
    for dtype in (torch.float64, torch.int8):
        a, b = drawn((m, k), dtype), drawn((n, k), dtype).t()
        assert same_bits(on_h200(a, b), tcgemm.mm(a, b))
    for dtype in (torch.float16, E4M3):
        if k < 100:
            continue
        a, b = drawn((m, k), dtype), drawn((n, k), dtype).t()
        assert not same_bits(on_h200(a, b), tcgemm.mm(a, b, out_dtype=torch.float32))


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.usefixtures("invariant")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_on_a_gpu(dtype):
    """The identities that a user relies on, of tcgemm.mm itself."""
    words = {"precision": WORDS.get(dtype)}
    if dtype in FLOATS:
        words["out_dtype"] = torch.float32
    a, b = drawn((300, 1024), dtype).cuda(), drawn((160, 1024), dtype).cuda().t()
    result = tcgemm.mm(a, b, **words)
    assert same_bits(tcgemm.mm(a[:16], b, **words), result[:16])
    assert same_bits(tcgemm.mm(a[100:228], b[:, :136], **words), result[100:228, :136])
    assert same_bits(tcgemm.mm(b.t(), a.t(), **words).t(), result)
    if dtype in (torch.float64, torch.int8):
        assert same_bits(result.cpu(), tcgemm.mm(a.cpu(), b.cpu()))
    name = next(row["name"] for row in info.devices() if row["code"] == "9.0a")
    assert same_bits(result.cpu(), on_h200(a.cpu(), b.cpu(), device=name))
