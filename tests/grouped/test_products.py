"""Every kind of grouped product beside a loop over its groups, exact and within bounds."""

import itertools

import pytest
import torch

import tcgemm

from support import cases, grouped
from support.cases import BF16, E4M3, F16, F32, F64, Guarded, gpu
from support.grouped import DEVICE_TYPES, KINDS, RAGGED, SPLITS, UNEVEN, ends_of, exact, make_call
from support.reference import assert_exact, assert_guarded, same_bits

grouped_mm = tcgemm.grouped_mm


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device, types", DEVICE_TYPES)
def test_groups_are_exact(device, types, kind, split):
    call = make_call(kind, split, types.dtype, device, largest=2)
    result = call.run(grouped_mm, precision=types.precision)
    assert_exact(result, exact(call))


@pytest.mark.parametrize("split", [UNEVEN, "unaligned"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device, types", DEVICE_TYPES)
def test_the_epilogue_is_exact_and_no_index_without_a_group_has_it(device, types, kind, split):
    addend = types.dtype if types.dtype == F64 else F32
    call = make_call(kind, split, types.dtype, device, largest=2, bias=addend, residual=addend)
    options = {"activation": "relu", "alpha": -2.0}
    result = call.run(grouped_mm, precision=types.precision, **options)
    assert_exact(result, exact(call, **options))


@pytest.mark.parametrize("split", [UNEVEN, "unaligned", "all in one"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device, types", DEVICE_TYPES)
def test_errors_stay_below_their_bound(device, types, kind, split):
    call = make_call(kind, split, types.dtype, device, bias=F32, residual=types.dtype)
    options = {"activation": "silu", "alpha": 0.5, "precision": types.precision}
    assert grouped.error_ratio(call.run(grouped_mm, **options), call, **options) <= 1


@pytest.mark.parametrize("activation", [None, *cases.ACTIVATIONS])
@pytest.mark.parametrize("kind", KINDS)
def test_activations(kind, activation, device):
    call = make_call(kind, UNEVEN, BF16, device, bias=BF16)
    result = call.run(grouped_mm, activation=activation)
    assert grouped.error_ratio(result, call, activation=activation) <= 1


@pytest.mark.parametrize("out_dtype", [F16, BF16, F32, E4M3], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_dtypes_of_results(kind, out_dtype, device):
    call = make_call(kind, UNEVEN, F16, device, largest=2, residual=F32)
    assert_exact(call.run(grouped_mm, out_dtype=out_dtype), exact(call, out_dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_strides_of_operands(kind, device):
    batched = [(name, "contiguous") for name in cases.BATCH_STRIDES if kind in ("columns", "batch")]
    batched += [("contiguous", name) for name in cases.BATCH_STRIDES if kind in ("rows", "batch")]

    def check(*strides):
        call = make_call(kind, UNEVEN, BF16, device, strides=strides, largest=2)
        assert_exact(call.run(grouped_mm), exact(call))

    cases.check_all([*cases.stride_pairs(), *batched], check)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_strides_of_out(kind, accumulate, device):
    call = make_call(kind, UNEVEN, BF16, device, largest=2)

    def check(strides, dtype):
        guarded = Guarded(strides, call.shape, dtype=dtype, device=device)
        expected = exact(call, dtype)
        if accumulate:
            cases.fill(guarded.view, largest=3)
            expected = expected + guarded.view
        result = call.run(grouped_mm, out_dtype=dtype, out=guarded.view, accumulate=accumulate)
        assert result is guarded.view
        assert_guarded(guarded, expected)

    batched = ("batch_innermost",) if kind in ("depth", "batch") else ()
    cases.check_all(itertools.product((*cases.OUT_STRIDES, *batched), (BF16, F32)), check)


@pytest.mark.parametrize("kind", KINDS)
def test_strides_of_addends(kind, device):
    call = make_call(kind, UNEVEN, BF16, device, largest=2)
    _, _, bias_shape, shape = grouped.operand_shapes(kind, 4, 164)

    def check(strides):
        bias = cases.make(strides, 2, *bias_shape, dtype=F32, device=device, largest=3)[1]
        residual = cases.make(strides, *shape, dtype=F16, device=device, largest=3)
        with_addends = call._replace(bias=bias, residual=residual)
        assert_exact(with_addends.run(grouped_mm), exact(with_addends))

    cases.check_all([(name,) for name in cases.STRIDES], check)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("kind", RAGGED)
def test_forms_of_offs(kind, dtype, device):
    call = make_call(kind, UNEVEN, BF16, device, largest=2)
    expected = exact(call)
    ends = call.offs.to(dtype)
    wide = torch.full((4, 3), -7, dtype=dtype, device=device)
    wide[:, 1] = ends
    odd = torch.full((5,), -7, dtype=dtype, device=device)
    odd[1:] = ends
    for offs in (ends, wide[:, 1], odd[1:]):
        assert_exact(call._replace(offs=offs).run(grouped_mm), expected)
    one = call._replace(offs=torch.tensor([9], dtype=dtype, device=device).expand(4))
    assert_exact(one.run(grouped_mm), exact(one))


SIZES = [
    {"groups": 0, "extent": 5},
    {"groups": 3, "extent": 0},
    {"groups": 0, "extent": 0},
    {"groups": 3, "extent": 5, "k": 0},
    {"groups": 3, "extent": 5, "n": 0},
    {"groups": 3, "extent": 5, "m": 0},
    {"groups": 3, "extent": 5, "m": 1, "n": 1, "k": 1},
]


@pytest.mark.parametrize("addends", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_empty_and_unit_sizes(kind, sizes, addends, device):
    groups, extent, *_ = sizes.values()
    lengths = [min(2, extent)] + [0] * (groups - 1) if groups else []
    others = {name: size for name, size in sizes.items() if name not in ("groups", "extent")}
    dtype = F32 if addends else None
    split = (lengths, extent - sum(lengths))
    call = make_call(kind, split, BF16, device, largest=2, bias=dtype, residual=dtype, **others)
    assert_exact(call.run(grouped_mm), exact(call))
    out = torch.full(call.shape, float("nan"), dtype=BF16, device=device)
    assert_exact(call.run(grouped_mm, out=out), exact(call))
    if not addends:
        out = torch.ones(call.shape, dtype=F32, device=device)
        assert_exact(call.run(grouped_mm, out=out, accumulate=True), exact(call, F32) + 1)


@pytest.mark.parametrize("kind", RAGGED)
def test_alpha_does_not_multiply_what_has_no_group(kind, device):
    call = make_call(kind, UNEVEN, BF16, device, largest=2)
    inside = call.loop(lambda a, b, bias, residual: 1, call.a).bool()
    result = call.run(grouped_mm, alpha=float("inf"))
    assert not result[~inside].any() and not result[inside].isfinite().any()


@pytest.mark.parametrize("kind", RAGGED)
def test_4096_groups(kind, device):
    lengths = torch.arange(4096, device="cpu") % 5  # each fifth is empty
    sizes = {"m": 9, "n": 17, "k": 16}
    call = make_call(kind, (lengths.tolist(), 3), F16, device, largest=2, bias=F32, **sizes)
    assert_exact(call.run(grouped_mm), exact(call))


def spoil(tensor, *index):
    tensor[index] = float("nan")


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize("kind", RAGGED)
def test_what_is_in_no_group_is_not_read(kind, dtype, device):
    call = make_call(kind, UNEVEN, dtype, device, largest=2, bias=F32, residual=F32)
    expected = exact(call)
    end = int(call.offs[-1])
    rest, everything = slice(end, None), slice(None)
    spoil(call.a, *((rest,) if kind == "rows" else (everything, rest) if kind == "depth" else (0,)))
    if kind != "rows":  # group 0 is empty, and so is its matrix
        spoil(call.b, *((everything, rest) if kind == "columns" else (rest,)))
    else:
        spoil(call.b, 0)
    if kind == "columns":
        spoil(call.bias, rest)
    else:
        spoil(call.bias, 0)  # no row adds it
    spoil(
        call.residual,
        *((everything, rest) if kind == "columns" else (rest if kind == "rows" else 0,)),
    )
    assert_exact(call.run(grouped_mm, precision="highest"), expected)


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_with_nan_spoils_no_other_group(kind, dtype, device):
    call = make_call(kind, "unaligned", dtype, device, largest=2, bias=F32)
    expected = exact(call)
    for number, (index, a, b, *_) in enumerate(call.parts()):
        if number % 2:
            spoil(a)
            spoil(b)
            spoil(expected, *index)
    result = call.run(grouped_mm)
    assert result.isnan().any() and torch.equal(result.isnan(), expected.isnan())
    assert_exact(result.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("out_dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_accumulate_adds_in_float32_and_rounds_once(kind, out_dtype, device):
    call = make_call(kind, UNEVEN, BF16, device)
    before = torch.randn(call.shape, device="cpu").to(device, out_dtype)
    out = before.clone()
    assert call.run(grouped_mm, out=out, accumulate=True, alpha=0.5) is out
    # The same sum as a product with a residual; what has no group keeps its bits.
    added = call._replace(residual=before).run(grouped_mm, out_dtype=out_dtype, alpha=0.5)
    inside = call.loop(lambda a, b, bias, residual: 1, added).bool()
    assert same_bits(out, torch.where(inside, added, before))
    assert inside.any() and inside.all() == (kind == "batch")


@pytest.mark.parametrize("kind", RAGGED)
def test_accumulate_leaves_nan_where_there_is_no_group(kind, device):
    call = make_call(kind, UNEVEN, BF16, device, largest=2)
    inside = call.loop(lambda a, b, bias, residual: 1, call.a).bool()
    out = torch.where(inside, 1.0, float("nan"))
    call.run(grouped_mm, out=out, accumulate=True)
    assert torch.equal(out.isnan(), ~inside)
    assert_exact(out.nan_to_num(), exact(call, F32) + inside.float())


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_a_tensor_of_its_own(kind, device):
    result = make_call(kind, UNEVEN, BF16, device).run(grouped_mm)
    assert result.is_contiguous() and result.storage_offset() == 0 and result._base is None
    assert result.untyped_storage().nbytes() == result.nbytes
    assert cases.reloaded(result).untyped_storage().nbytes() == result.nbytes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "device, types", [row for row in DEVICE_TYPES if not row.id.startswith("cuda-f32-highest")]
)
def test_the_bits_of_a_group_are_those_of_mm(device, types, kind):
    if device == "cuda" and kind == "depth":
        pytest.skip("mm has other slices of k")
    call = make_call(kind, UNEVEN, types.dtype, device, bias=F32)
    options = {"activation": "gelu", "precision": types.precision, "batch_invariant": True}

    def one(a, b, bias, residual):
        return tcgemm.mm(a, b, bias=bias, **options)

    result = call.run(grouped_mm, **options)
    assert same_bits(result, call.loop(one, result))


@pytest.mark.parametrize("device, types", DEVICE_TYPES)
def test_the_bits_of_a_row_do_not_depend_on_other_groups(device, types):
    call = make_call("rows", "unaligned", types.dtype, device)
    whole = call.run(grouped_mm, precision=types.precision)
    ends = call.offs.tolist()
    alone = grouped_mm(
        call.a[ends[3] : ends[4]],
        call.b[4:5],
        offs=ends_of([ends[4] - ends[3]], device=device),
        precision=types.precision,
    )
    assert same_bits(alone, whole[ends[3] : ends[4]])
    last = grouped_mm(
        call.a[ends[4] - 1 : ends[4] + 1],
        call.b[4:6],
        offs=ends_of([1, 1], device=device),
        precision=types.precision,
    )
    assert same_bits(last, whole[ends[4] - 1 : ends[4] + 1])


@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("kind", RAGGED)
def test_a_negative_bit_is_resolved(kind, out, device):
    call = make_call(kind, UNEVEN, F32, device, largest=2)

    def imaginary(tensor):
        return torch.complex(tensor, -tensor).conj().imag  # the tensor, with the bit

    negative = call._replace(a=imaginary(call.a), b=imaginary(call.b))
    assert negative.a.is_neg()
    if not out:
        return assert_exact(negative.run(grouped_mm), exact(call))
    before = torch.ones(call.shape, device=device)
    target = imaginary(before)
    negative.run(grouped_mm, out=target, accumulate=True)
    assert_exact(target.resolve_neg(), exact(call) + 1)
    return None


@pytest.mark.parametrize("device", [gpu("cuda")])
@pytest.mark.parametrize("kind", RAGGED)
def test_a_call_does_not_wait_for_the_gpu(kind, device):
    call = make_call(kind, UNEVEN, BF16, device)
    assert cases.waits_for_nothing(lambda: call.run(grouped_mm))


@pytest.mark.parametrize("device", [gpu("cuda")])
@pytest.mark.parametrize("kind", RAGGED)
def test_a_captured_graph_takes_other_ends(kind, device):
    call = make_call(kind, UNEVEN, BF16, device, largest=2, bias=F32)
    graph, result = cases.graph_of(lambda: call.run(grouped_mm))
    for lengths in ((0, 0, 0, 0), (164, 0, 0, 0), (1, 62, 63, 38), (0, 70, 0, 33)):
        call.offs.copy_(ends_of(lengths))
        graph.replay()
        assert_exact(result, exact(call))
