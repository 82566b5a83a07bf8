"""One small problem a kernel family, for compute-sanitizer:

    compute-sanitizer --tool memcheck --error-exitcode 1 python tests/support/sanitize.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/support/sanitize.py e4m3

Words after the script's name restrict it to families whose name contains one of them. Every tensor
is an allocation of its own and exactly as large as it looks, so that memcheck sees what is read or
written beside it; operands are made and results compared on the CPU, so that no kernel of torch
stands between those that are looked at.

racecheck does not know that __syncwarp orders the reads of a warp before the arrival of one of its
lanes. So it reports hazards for "split", where the stages of the f32 kernel wrap around
(csrc/kernels/sm90/fp64/mainloop.cuh). With an arrival of every lane, which gives the same order,
there were none.

Nor does racecheck know that WGMMA waits for all four warps of a warpgroup, so that none writes the
vector of the next tile (sm90/epilogue.cuh, SharedVector) while another reads that of this one. So
problems with a vector have one tile a CTA.
"""

import os
import re
import sys
import time
from pathlib import Path

# Before torch is imported: its caching allocator would put tensors side by side.
os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT / "tests"), str(ROOT)]

import torch  # noqa: E402

from support import cases, dtype_matrix, reference, sparse_operands  # noqa: E402
from support.cases import BF16, E4M3, E5M2, F16, F32, S8, S32, U8  # noqa: E402
from support.catalog_rows import MIRRORED, built_rows, every_row, kernel_name  # noqa: E402
from support.dtype_matrix import GemmTypes, scale_a, scale_b, zero_points  # noqa: E402

scaled_mm = torch.ops.tcgemm.scaled_mm
scaled_mm_amax = torch.ops.tcgemm.scaled_mm_amax


def on_gpu(options):
    return {
        name: value.cuda() if isinstance(value, torch.Tensor) else value
        for name, value in options.items()
    }


def check(a, b, kernel, amax=True, **options):
    """On the GPU, bit by bit."""
    terms = {name: value for name, value in options.items() if value is not None}
    result = scaled_mm(a.cuda(), b.cuda(), **on_gpu(terms), kernel_name=kernel)
    reference.assert_exact(result.cpu(), reference.exact(a, b, **terms))
    if not amax or terms.get("out_dtype") in (None, S32) or re.search("f16x2|bf16x3", kernel or ""):
        return
    result, amax = scaled_mm_amax(a.cuda(), b.cuda(), **on_gpu(terms), kernel_name=kernel)
    terms.pop("scale_out", None)
    reference.assert_amax(amax.cpu(), a, b, **terms)


def family(row):
    """A kernel by itself: whole words first, then what comes one by one."""
    types = row.types
    if row.uses_tma:
        clusters(row)
    if row.unrolled_only:
        return unrolled(row)
    for layout in row.layouts:
        for odd in (0, 1):
            m, n, k = (size + 16 + odd for size in row.tile)
            k += 128 if row.block_scaled else row.tile[2]
            if odd and row.uses_tma and row.layout != "TN":
                continue  # TMA cannot read these, and their copies are K-major
            a, b = types.operands(layout, m, n, k, whole=True)
            scales = {}
            if row.block_scaled:
                scales["scale_a"] = scale_a("1x128", m, k, powers=True)
                scales["scale_b"] = scale_b(("128x128", "1x128")[odd], n, k, powers=True)
            check(a, b, row.name, **scales, **types.options)
            for step, out in enumerate(out for out in types.outs if out != S32):
                terms = dict(scales)
                if not scales:
                    terms["scale_a"] = scale_a("row", m, k, powers=True)
                    terms["scale_b"] = scale_b("row", n, k, powers=True)
                if types.integer:  # so that sums stay below 2^24
                    terms["alpha"] = 2.0**-8
                    terms["zero_a"] = zero_points(m, 1, largest=3)
                terms["c"] = types.addend(m, n, out=out, step=step) if step % 2 else None
                terms["bias"] = types.addend(n, out=out, step=step)
                terms["residual"] = types.addend(m, n, out=out, step=step + 1)
                terms["scale_out"] = torch.full((), 0.5)
                options = {"activation": "relu", "out_dtype": out, **types.options}
                check(a, b, row.name, **terms, **options)


def clusters(row):
    """Two and four blocks that load for each other; the last one has no rows."""
    m, n, k = (
        2 * row.tile[0] + 16,
        row.tile[1] + 24,
        3 * row.tile[2] + (128 if row.block_scaled else 0),
    )
    a, b = row.types.operands(row.layouts[0], m, n, k, whole=True)
    scales = {}
    if row.block_scaled:
        scales["scale_a"] = scale_a("1x128", m, k, powers=True)
        scales["scale_b"] = scale_b("128x128", n, k, powers=True)
    for size in (2, 4):
        check(a, b, kernel_name(row, size), amax=False, **scales, **row.types.options)


def unrolled(row):
    """A kernel that stores rows of vectors alone: every variant of its epilogue."""
    m, n, k = row.tile[0] + 16, row.tile[1] + 24, 3 * row.tile[2]
    a, b = row.types.operands(row.layout, m, n, k, whole=True)
    kind_a, kind_b = ("1x128", "128x128") if row.block_scaled else ("row", "row")
    terms = {"scale_a": scale_a(kind_a, m, k, powers=True)}
    terms["scale_b"] = scale_b(kind_b, n, k, powers=True)
    if row.types.integer:
        terms["alpha"] = 2.0**-8
    for step, out in enumerate(out for out in row.types.outs if out in cases.HALVES):
        terms["bias"] = row.types.addend(n, out=out, step=step)
        residuals = [None, cases.make("contiguous", m, n, dtype=out, largest=9)]
        for residual in residuals[:1] if row.bias_only else residuals:
            options = {"activation": "relu", "residual": residual, "out_dtype": out}
            check(a, b, row.name, amax=False, **terms, **options, **row.types.options)


def by_columns(row):
    """Results that the kernel stores by columns: both variants of the epilogue, a store warp and
    clusters, with more tiles than CTAs."""
    for down, across in ((2, 2), (6, 24)):
        n, m, k = down * row.tile[0] - 16, across * row.tile[1] - 3, 2 * row.tile[2] + 16
        has_one_tile_a_cta = down * across <= 8
        a, b = row.types.operands(MIRRORED[row.layout], m, n, k, whole=True)
        options = dict(row.types.options)
        if row.types.integer:
            options["alpha"] = 2.0**-8
        scales = {} if row.input == "tf32" else {"scale_a": scale_a("row", m, k, powers=True)}
        for out in (F32,) if row.input == "tf32" else cases.HALVES:
            bias = cases.make("contiguous", 1, n, dtype=F32, largest=9)[0]
            columns = cases.make("contiguous", m, 1, dtype=F32, largest=9)
            matrix = cases.make("contiguous", m, n, dtype=out, largest=9)
            every_terms = [{}, {"bias": bias, "activation": "relu"}, {"residual": matrix}]
            if has_one_tile_a_cta:
                every_terms += [
                    {"bias": columns, "c": matrix, "beta": 2.0},
                    {"residual": matrix} | scales,
                ]
            for terms in every_terms:
                for cluster in (1, "2x2"):
                    kernel = kernel_name(row, cluster, other_orientation=True)
                    check(a, b, kernel, out_dtype=out, **terms, **options)


def prepare(types, kernel):
    """Copies of every stride, of the dtype's size or to another one."""
    for strides in ("transposed", "odd_pitch", "offset", "step_both", "transposed_odd"):
        # Views of their own storage: to("cuda") would make contiguous ones of them.
        whole = []
        for shape, dtype in (((70, 90), types.a), ((90, 66), types.b)):
            options = {"dtype": dtype, "largest": types.largest(90)}
            values = cases.make("contiguous", *shape, **options)
            view = cases.empty(strides, shape, dtype=dtype, device="cuda")
            whole.append((values, view.copy_(values)))
        (a, on_a), (b, on_b) = whole
        result = scaled_mm(on_a, on_b, **types.options, kernel_name=kernel)
        reference.assert_exact(result.cpu(), reference.exact(a, b, **types.options))


def split(kernel):
    """Both passes and the recompute pass: rows that span too much, and some that are not finite."""
    types = GemmTypes(F32, F32, F32, "highest")
    for strides in ("contiguous", "transposed", "odd_pitch", "step_both"):
        a, b = types.make("contiguous", "contiguous", 131, 70, 333, whole=True)
        a[5] *= 2.0 ** torch.arange(-40, 293).clamp(max=40)
        a[100, 7], b[9, 66] = float("inf"), float("nan")
        on_a, on_b = (
            cases.empty(strides, x.shape, dtype=F32, device="cuda").copy_(x) for x in (a, b)
        )
        result = torch.ops.tcgemm._gemm(on_a, on_b, kernel=kernel).cpu()
        expected = (a.double() @ b.double()).float()
        assert torch.equal(result.isfinite(), expected.isfinite())
        rows = [row for row in range(131) if row != 5]
        finite = expected.isfinite()
        assert torch.equal(result[rows][finite[rows]], expected[rows][finite[rows]])
        assert torch.allclose(result[5][finite[5]], expected[5][finite[5]], rtol=1e-4)


def sparse(row):
    """A kernel with a sparse operand, from both sides: whole words, and what is copied first."""
    options = sparse_operands.options_of(row.types)
    for side in sparse_operands.SIDES:
        for odd in (0, 1):
            m, n, k = (size + 16 + odd for size in row.tile)
            if odd and row.layout != "TN":
                continue  # copies are K-major
            largest = row.types.largest(k)
            w = sparse_operands.sparse_matrix(m, k, row.types.a, largest=largest)
            x = cases.make("contiguous", n, k, dtype=row.types.b, largest=largest)
            on_x = x.cuda() if row.layout == "TN" else x.t().contiguous().cuda().t()
            on_x, x = (on_x.t(), x.t()) if side == "a" else (on_x, x)
            result = sparse_operands.multiply(side, w.cuda(), on_x, kernel_name=row.name, **options)
            expected = reference.exact(*sparse_operands.dense_sides(side, w, x), **options)
            reference.assert_exact(result.cpu(), expected)


def passes24():
    """Prune, compress, decompress and tiles, of both majors and ragged sizes."""
    for dtype in (F32, BF16, S8, E4M3):
        for rows, k in ((70, 130), (128, 256), (3, 5)):
            for transposed in (False, True):
                w = cases.make("contiguous", rows, k, dtype=dtype)
                on_w = w.t().contiguous().cuda().t() if transposed else w.cuda()
                pattern = sparse_operands.pattern(dtype)
                arguments = (pattern, pattern == "2:4")
                pruned = sparse_operands.prune24(on_w, *arguments)
                assert torch.equal(
                    pruned.cpu().view(U8), sparse_operands.prune24(w, *arguments).view(U8)
                )
                values, metadata, _ = sparse_operands.compress24(on_w, pattern, True)
                expected = sparse_operands.compress24(w, pattern, True)
                assert torch.equal(values.cpu().view(U8), expected[0].view(U8))
                assert torch.equal(metadata.cpu(), expected[1])
                values = torch.ops.tcgemm.gather24(on_w, metadata, pattern)
                assert torch.equal(values.cpu().view(U8), expected[0].view(U8))
                tiles = sparse_operands.tile24(metadata, k, pattern, dtype)
                assert torch.equal(
                    tiles.cpu(), sparse_operands.tile24(expected[1], k, pattern, dtype)
                )
                back = torch.ops.tcgemm.decompress24(values, metadata, k, pattern)
                dense = torch.ops.tcgemm.decompress24(*expected[:2], k, pattern)
                assert torch.equal(back.cpu().view(U8), dense.view(U8))


def sums():
    for dtype_a, dtype_b, layout in ((S8, U8, "TN"), (U8, S8, "NT"), (S8, S8, "NN")):
        types = GemmTypes(dtype_a, dtype_b, S32)
        a, b = types.operands(layout, 70, 90, 333)
        check(a, b, None, zero_a=zero_points(70, 1), zero_b=zero_points(1, 90), **types.options)


def quantize():
    for source in (F32, BF16, F16):
        for shape in ((3, 5, 300), (130, 257), (257, 128), (1, 4100)):
            x = torch.randn(shape).to(source)
            for granularity in dtype_matrix.GRANULARITIES:
                for dtype in (E4M3, E5M2, S8):
                    values, scale = torch.ops.tcgemm.quantize(x.cuda(), dtype, granularity)
                    expected, expected_scale = torch.ops.tcgemm.quantize(x, dtype, granularity)
                    assert torch.equal(values.cpu().view(U8), expected.view(U8))
                    assert torch.equal(scale.cpu(), expected_scale)
                    arguments = (dtype, granularity)
                    torch.ops.tcgemm.quantize.scaled(x.cuda(), scale, *arguments)


def works():
    """Name -> what to run: of every family its smallest tile, and its largest, where several
    warpgroups alternate (ping-pong)."""
    families = {}
    for row in every_row():  # tiles come from the largest to the smallest
        words = [row.arch, str(row.types), row.layout.lower()]
        words += [row.mainloop, f"{row.input}x{row.terms}", "pingpong"[: 8 * row.pingpong]]
        families.setdefault("_".join(words), []).append(row)
    functions = {}
    for name, several in families.items():
        for row in several[:1] + several[1:][-1:]:
            tile = "x".join(map(str, row.tile[:2]))
            functions[f"{name}_{tile}"] = lambda row=row: family(row)
    columns = {}
    for row in built_rows():
        if row.stores_columns and row.input in ("bf16", "e4m3", "s8", "tf32"):
            # An even or odd number of buffers, the last of them whole or half.
            key = f"{row.input}_{row.mainloop}_{row.layout}_{row.tile[0]}_{row.tile[1] % 64}"
            columns.setdefault(f"sm90a_columns_{key}", row)
    for name, row in columns.items():
        functions[name] = lambda row=row: by_columns(row)
    for row in every_row(sparse=True):
        functions[row.name] = lambda row=row: sparse(row)
    for types, kernel in (
        (GemmTypes(E4M3, E4M3, F32), "sm90a_e4m3_f32_64x64x128"),
        (GemmTypes(BF16, BF16, F32), "sm90a_bf16_f32_64x64x64"),
        (GemmTypes(F32, F32, F32, "high"), "sm90a_tf32_f32_64x64x32"),
        (GemmTypes(F32, F32, F32, "medium"), "sm90a_bf16_f32_64x64x64"),
    ):
        functions[f"prepare_{types}"] = lambda types=types, kernel=kernel: prepare(types, kernel)
    for kernel in ("f16x2", "bf16x3"):
        functions[f"split_{kernel}"] = lambda kernel=kernel: split(kernel)
    return functions | {"sums": sums, "quantize": quantize, "passes24": passes24}


def main(words):
    capability = torch.cuda.get_device_capability()
    torch.manual_seed(20)
    begin = time.monotonic()
    for name, work in works().items():
        if words and not any(word in name for word in words):
            continue
        if (name.startswith("sm89") and capability < (8, 9)) or (
            name.startswith(("sm90", "prepare", "split")) and capability != (9, 0)
        ):
            continue
        start = time.monotonic()
        work()
        torch.cuda.synchronize()
        print(f"{name:44} {time.monotonic() - start:6.1f} s", flush=True)
    print(f"{'all right':44} {time.monotonic() - begin:6.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
