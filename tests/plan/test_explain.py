"""The text of explain and check_layout, for meta tensors and for named GPUs: it needs no GPU."""

import inspect
import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tcgemm
from tcgemm.measure import kernel_name

from support import cases, meta_problems, pages
from support.source_tree import ROOT

H200 = "H200"
BF16 = torch.bfloat16


def meta(strides, *shape, dtype=BF16):
    return cases.empty(strides, shape, dtype=dtype, device="meta")


NUMBER = r"[\d.]+(e[+-]?\d+)?"
EXPLAINED = {
    "kernel": r"\n  kernel +sm\w+ \(row \d+ of the catalog, \w+ epilogue\)",
    "layout": r"\n  layout +\S",
    "repack": r"\n  repack",
    "tile": r"\n  tile +\d+ x \d+ x \d+",
    "stages": r"\d+ stages of ",
    "cluster": r"\n  cluster +\d(x\d)?\n",
    "grid": r"\n  grid +\d+ CTAs on \d+ multiprocessors",
    "waves": rf"{NUMBER} waves",
    "epilogue": r"\n  epilogue +\S",
    "FLOPs": rf"\n  work +{NUMBER} FLOP",
    "bytes": rf"{NUMBER} [KMGT]?B of device memory",
    "intensity": rf"{NUMBER} FLOP a byte",
    "bound": r"\n  bound +(compute|memory|launch) ",
    "why": r"\n  why +\S+ \S+ \S+",
}


@pytest.mark.parametrize("device", (None, "H200", "A100", "RTX 4090"))
@pytest.mark.parametrize("size", (64, 1000, 4095, 8192))
def test_explain_says_everything(size, device):
    a, b = meta("contiguous", size, size), meta("transposed", size, size)
    text = tcgemm.explain(a, b, device=device)
    for item, pattern in EXPLAINED.items():
        assert re.search(pattern, text), f"{item} is not in\n{text}"
    assert f"on {device or H200}" in text
    assert not re.search(r"\bnan\b|\binf\b|-\d+ ", text)


@pytest.mark.parametrize("device", ("H200", "A100"))
def test_explain_of_every_kind_of_call(device):
    for shape_a, shape_b in (
        ((40,), (40, 17)),
        ((5, 33, 40), (40, 17)),
        ((2, 3, 33, 40), (3, 40, 17)),
        ((33, 40), (40,)),
    ):
        a, b = (torch.empty(shape, dtype=BF16, device="meta") for shape in (shape_a, shape_b))
        assert " FLOP a byte" in tcgemm.explain(a, b, device=device)
        assert "kernel family" in tcgemm.check_layout(a, b, device=device)


def test_explain_names_the_epilogue():
    a, b = meta("contiguous", 512, 256), meta("contiguous", 256, 128)
    bias, residual = torch.empty(128, device="meta"), torch.empty(512, 128, device="meta")
    text = tcgemm.explain(a, b, bias=bias, residual=residual, activation="gelu", alpha=2.0)
    epilogue = re.search(r"\n  epilogue +(.*)", text).group(1)
    for part in ("alpha", "bias", "gelu", "residual"):
        assert part in epilogue


QUESTIONS = (tcgemm.explain, tcgemm.check_layout)
PRODUCTS = (
    *(tcgemm.mm, tcgemm.bmm, tcgemm.matmul, tcgemm.addmm, tcgemm.baddbmm),
    tcgemm.grouped_mm,
)


def test_every_argument_of_the_products_can_be_asked_about():
    names = set()
    for product in PRODUCTS:
        names |= set(inspect.signature(product).parameters)
    for question in QUESTIONS:
        assert set(inspect.signature(question).parameters) == names | {"device", "kernel"}


def test_every_tensor_of_the_epilogue_is_named():
    a, b = (
        meta("contiguous", 512, 256, dtype=torch.int8),
        meta("transposed", 256, 128, dtype=torch.int8),
    )

    def new(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype, device="meta")

    zeros = {"zero_a": new(512, 1, dtype=torch.int32), "zero_b": new(1, dtype=torch.int32)}
    scales = {"scale_a": new(512, 1), "scale_b": new(1, 128), "scale_out": new()}
    addends = {"c": new(128), "beta": 0.5, "bias": new(128), "residual": new(512, 128)}
    text = tcgemm.explain(a, b, **zeros, **scales, **addends, amax=True, out_dtype=torch.int8)
    terms = line(text, "epilogue")
    for term in (*zeros, "scale_a", "scale_b", "beta * c", "bias", "residual", "amax", "scale_out"):
        assert term in terms
    assert "sums          of a along k" in text and "sums          of b along k" in text
    assert "kernel family" in tcgemm.check_layout(a, b, **zeros, out_dtype=torch.float32)


def test_the_kernel_of_a_sparse_operand_with_an_epilogue():
    x, w = torch.ones(16, 64).bfloat16(), torch.ones(48, 64).bfloat16()
    w = tcgemm.compress24(w, prune=True)
    text = tcgemm.explain(x, w.t(), c=torch.ones(48), beta=2.0, scale_out=torch.ones(()), amax=True)
    assert text.kernel.endswith("_sparse") and "beta * c" in text.epilogue
    with pytest.raises(
        RuntimeError, match=r"tcgemm.explain: scale_a is a SparseTensor24, but only"
    ):
        tcgemm.explain(x, w.t(), scale_a=w)
    assert "amax" in text.epilogue


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_product_refuses_is_refused(question):
    a, b = meta("contiguous", 64, 32), meta("contiguous", 32, 16)
    name = f"tcgemm.{question.__name__}: "
    for options, error, sentence in (
        (
            {"zero_a": torch.empty((), dtype=torch.int32, device="meta")},
            RuntimeError,
            "zero_a is g",
        ),
        (
            {"scale_out": torch.empty(2, device="meta")},
            RuntimeError,
            "scale_out must have one elem",
        ),
        ({"c": torch.empty(3, device="meta")}, RuntimeError, "c of shape (3,) does not broadcast"),
        ({"c": 1.0}, TypeError, "c must be a torch.Tensor, but is float"),
        ({"amax": True, "out": meta("contiguous", 64, 16)}, RuntimeError, "with amax=True two ten"),
    ):
        with pytest.raises(error) as excinfo:
            question(a, b, **options)
        assert str(excinfo.value).startswith(name + sentence)
    a, b = a.to(torch.int8), b.to(torch.int8)
    with pytest.raises(RuntimeError, match=r"amax is asked for, but a torch.int32 result"):
        question(a, b, amax=True)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_has_fields(question):
    a, b = meta("contiguous", 4096, 1024), meta("odd_pitch", 1024, 2048)
    answer = question(a, b, device="H200", activation="gelu")
    words = {"b": (0, 2049, 1), "layout": "NN", "epilogue": ["gelu"]}
    plan = meta_problems.plan("H200", "bf16", 4096, 2048, 1024, **words)
    assert answer.kernel in answer and answer.copies == "b" and answer.products == 1
    assert answer.fields == {name: plan[name] for name in answer.fields}
    assert answer.tile == plan["tile"] and isinstance(answer.tile, tuple)
    assert 0 < answer.memory_microseconds < answer.microseconds
    assert answer.flops == 2 * 4096 * 2048 * 1024
    assert question(a[:0], b).kernel is None and question(a[:0], b).products == 0


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_notebook_shows_the_answer_as_it_prints(question):
    a = meta("contiguous", 512, 512)
    answer = question(a, a.t())
    assert isinstance(answer, str) and repr(answer) == str(answer) == f"{answer}"
    assert answer.splitlines()[0].startswith("tcgemm: ")
    html = answer._repr_html_()
    if question is tcgemm.explain:
        assert answer.kernel in html and "<table>" in html and html.count("<tr>") == 7
    else:  # the layouts are what the question is about
        assert html == f"<pre>{answer}</pre>" and "leading dimension 512" in html
    copy = pickle.loads(pickle.dumps(answer))
    assert copy == answer and copy.fields == answer.fields
    report = tcgemm.info.report()
    assert repr(report) == str(report) and report._repr_html_().startswith("<pre>tcgemm ")


@pytest.mark.parametrize("question", QUESTIONS)
def test_under_transforms(question):
    x = torch.randn(3, 4, 4)
    name = question.__name__
    for call in (
        lambda: torch.vmap(lambda a: (question(a, a), a)[1])(x),
        lambda: torch.vmap(torch.func.grad(lambda a: (question(a, a), a.sum())[1]))(x),
        lambda: torch.func.grad(lambda x: torch.vmap(lambda a: (question(a, a), a)[1])(x).sum())(x),
    ):
        with pytest.raises(RuntimeError, match=f"tcgemm.{name}: a is mapped over by torch.vmap"):
            call()
    torch.func.grad(lambda a: (question(a, a), a.sum())[1])(x[0])
    torch.vmap(lambda a: (question(x[0], x[0]), a)[1])(x)


def test_explain_of_a_column_major_result():
    a, b = meta("contiguous", 512, 256), meta("contiguous", 256, 128)
    text = tcgemm.explain(a, b, out=meta("transposed", 512, 128))
    assert "column-major" in text
    assert "column-major" not in tcgemm.explain(a, b, out=meta("contiguous", 512, 128))


def test_explain_says_how_batches_are_run():
    a, b = meta("contiguous", 5, 33, 40), meta("contiguous", 40, 17)
    assert "one dimension of 165 rows" in tcgemm.explain(a, b)
    a, b = meta("batch_reversed", 5, 3, 33, 40), meta("contiguous", 5, 3, 40, 17)
    assert re.search(r"\b[35] products like this", tcgemm.explain(a, b))


def test_explain_of_an_empty_result():
    a = meta("contiguous", 0, 64)
    assert "empty" in tcgemm.explain(a, meta("contiguous", 64, 8))
    assert "empty" in tcgemm.check_layout(a, meta("contiguous", 64, 8))


def test_explain_on_the_cpu_names_the_cpu():
    a = torch.empty(64, 64, dtype=BF16)
    assert "CPU" in tcgemm.explain(a, a)


@pytest.mark.parametrize("function", (tcgemm.explain, tcgemm.check_layout))
def test_unknown_gpu_is_a_sentence(function):
    a = meta("contiguous", 64, 64)
    with pytest.raises(RuntimeError) as error:
        function(a, a, device="H900")
    sentence = str(error.value)
    assert 'device is "H900"' in sentence
    for name in ("H200", "H100", "A100", "A10", "L40S", "RTX 4090"):
        assert name in sentence


@pytest.mark.parametrize("function", (tcgemm.explain, tcgemm.check_layout))
def test_plan_of_what_has_no_kernel_is_a_sentence(function):
    a = meta("contiguous", 64, 64, dtype=torch.float32)
    assert "f32" in function(a, a)
    with pytest.raises(
        RuntimeError, match=r'multiplies f32 .* on A100.*"highest".*"high".*"medium"'
    ):
        function(a, a, device="A100")
    a = meta("contiguous", 64, 64, dtype=torch.float64)
    assert "f64" in function(a, a)
    assert "sm80_f64" in tcgemm.explain(a, a, device="A100")


# Every dtype.

F8 = torch.float8_e4m3fn


def head(text):
    return text.splitlines()[0]


def line(text, name):
    return re.search(rf"\n  {name} +(.*)", text).group(1)


@pytest.mark.parametrize("device", ("H200", "L40S"))
@pytest.mark.parametrize(
    ("dtype", "words", "options"),
    [
        (torch.float32, "f32 as tf32 to f32 (accumulator f32)", {"precision": "high"}),
        (torch.float32, "f32 as bf16 to f32 (accumulator f32)", {"precision": "medium"}),
        (F8, "e4m3 to bf16 (accumulator f32, promoted every 128 of k)", {}),
        (F8, "e4m3 to bf16 (accumulator f32)", {"precision": "fast"}),
        (torch.int8, "s8 to s32 (accumulator s32)", {}),
        (torch.uint8, "u8 to bf16 (accumulator s32)", {"out_dtype": BF16}),
    ],
    ids=str,
)
def test_every_dtype_has_its_words(dtype, words, options, device):
    a, b = meta("contiguous", 512, 256, dtype=dtype), meta("transposed", 256, 128, dtype=dtype)
    for function in (tcgemm.explain, tcgemm.check_layout):
        assert words in head(function(a, b, device=device, **options))
    text = tcgemm.explain(a, b, device=device, **options)
    assert ("\n  precision " in text) == (dtype in (torch.float32, F8))
    for item, pattern in EXPLAINED.items():
        assert re.search(pattern, text), f"{item} is not in\n{text}"


def test_mixed_operands_are_named():
    a = meta("contiguous", 64, 64, dtype=F8)
    b = meta("transposed", 64, 64, dtype=torch.float8_e5m2)
    assert "e4m3 by e5m2 to bf16" in head(tcgemm.explain(a, b))
    assert "e5m2 by e4m3 to bf16" in head(tcgemm.explain(b, a))


def test_explain_says_where_scales_are_multiplied():
    a, b = meta("contiguous", 512, 256, dtype=F8), meta("transposed", 256, 384, dtype=F8)

    def scaled(shape_a, shape_b):
        scales = [torch.empty(shape, device="meta") for shape in (shape_a, shape_b)]
        return tcgemm.explain(a, b, scale_a=scales[0], scale_b=scales[1])

    text = scaled((), (1,))
    assert line(text, "epilogue").startswith("scale_a (one value), scale_b (one value), fused")
    text = scaled((512, 1), (1, 384))
    assert line(text, "epilogue").startswith("scale_a (a value a row), scale_b (a value a column)")
    text = scaled((512, 2), (2, 3))
    assert line(text, "scales").startswith("scale_a (blocks of 1 x 128), scale_b (blocks of 128")
    assert line(text, "scales").endswith(" x 128), in the mainloop, every 128 of k")
    text = scaled((4, 2), (2, 384))
    assert line(text, "scales").startswith("scale_a (blocks of 128 x 128), scale_b (blocks of 128")
    assert "blocks of 128 x 1)" in line(text, "scales")
    assert "scale" not in line(text, "epilogue")


def test_explain_says_what_a_layout_costs():
    """8-bit operands that lie MN-major: copied, or transposed on their way to registers."""
    for dtype, pattern in (
        (F8, "repack b      copied K-major"),
        (torch.int8, "RS operand    b is transposed in registers"),
    ):
        a = meta("contiguous", 4096, 4096, dtype=dtype)
        text = tcgemm.explain(a, a)
        assert re.search(pattern, text)
        assert f"tensor cores read {'e4m3' if dtype is F8 else 's8'} K-major only" in text
        assert re.search(r"about [\d.]+ us|about \d+ % of the GEMM's time", text)
        text = tcgemm.check_layout(a, a)
        assert "store it K-major (N x K row-major, given as .t()), where it is reused" in text
        has_copy = "a repack pass copies it first" in text
        assert has_copy == (dtype is F8)
        assert ("the RS mainloop transposes it in registers" in text) != has_copy


def test_advice_for_operands_that_are_converted():
    a = meta("contiguous", 4096, 4096, dtype=torch.float32)
    text = tcgemm.check_layout(a, a.t(), precision="medium")
    assert "faster: a.bfloat16(), once, where it is reused" in text
    assert "repack b      copied K-major" in text


def test_the_bound_uses_the_rate_of_the_dtype():
    times = {}
    for dtype, options in ((BF16, {}), (torch.float32, {"precision": "high"}), (torch.int8, {})):
        a = meta("contiguous", 8192, 8192, dtype=dtype)
        text = tcgemm.explain(a, a.t(), **options)
        times[dtype] = float(re.search(r"compute ([\d.]+) us", text).group(1))
    assert times[torch.float32] == pytest.approx(2 * times[BF16], rel=1e-3)
    assert times[torch.int8] == pytest.approx(times[BF16] / 2, rel=1e-3)


# The text of check_layout.

KINDS = (
    ("contiguous", "K-major", "leading dimension 512", "TMA can read it", "nothing"),
    ("transposed", "MN-major", "leading dimension 256", "TMA can read it", "nothing"),
    ("padded", "K-major", "leading dimension 520", "TMA can read it", "nothing"),
    ("transposed_padded", "MN-major", "leading dimension 264", "TMA can read it", "nothing"),
    ("offset_aligned", "K-major", "aligned to 32 bytes", "TMA can read it", "nothing"),
    ("offset", "K-major", "aligned to 2 bytes", "its first element", "multiple of 8 elements"),
    ("odd_pitch", "K-major", "leading dimension 513", "its leading dimension", "of 520"),
    ("transposed_odd", "MN-major", "leading dimension 257", "its leading dimension", "of 264"),
    ("step_rows", "K-major", "leading dimension 1024", "TMA can read it", "nothing"),
    ("step_cols", "strided", "aligned", "neither dimension has stride 1", "a.contiguous()"),
    ("step_both", "strided", "aligned", "neither dimension has stride 1", "a.contiguous()"),
    ("expanded_rows", "K-major", "leading dimension 0", "it is expanded", "expand the result"),
    ("expanded_cols", "MN-major", "leading dimension 0", "it is expanded", "expand the result"),
    ("expanded_both", "strided", "aligned", "neither dimension has stride 1", "a.contiguous()"),
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
def test_check_layout_says_what_an_operand_is(kind):
    strides, *facts = kind
    a, b = meta(strides, 256, 512), meta("contiguous", 512, 1024)
    head, first, second, *_ = re.split(r"\n  (?=[ab]  |kernel)", tcgemm.check_layout(a, b))
    assert "256 x 512 @ b 512 x 1024" in head
    for fact in facts:
        assert fact in first, first
    assert "b   MN-major, leading dimension 1024" in second
    assert "TMA can read it" in second


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_check_layout_names_the_layout(layout):
    stored_a, stored_b = cases.major_strides(layout)
    text = tcgemm.check_layout(meta(stored_a, 512, 256), meta(stored_b, 256, 128))
    assert f"{layout} (a " in text
    assert re.search(r"kernel family sm90a: TMA and wgmma|kernel family sm80: cp.async", text)


def test_check_layout_says_what_is_copied():
    a, b = meta("odd_pitch", 4096, 4096), meta("transposed", 4096, 4096)
    for function in (tcgemm.check_layout, tcgemm.explain):
        text = function(a, b)
        assert re.search(r"repack a +copied K-major with a pitch of 4096 elements because", text)
        assert "repack b" not in text
    assert "a repack pass copies it first" in tcgemm.check_layout(a, b)
    assert "nothing is copied" in tcgemm.check_layout(b.t(), b)
    # out^T = b^T a^T: the operand is still called by its own name.
    text = tcgemm.check_layout(a, b, out=meta("transposed", 4096, 4096))
    first, second = re.split(r"\n  (?=[ab]  )", text)[1:]
    assert "a repack pass" in first
    assert "a repack pass" not in second


def test_a_batch_that_is_not_aligned():
    whole = torch.empty(3, 256 * 512 + 4, dtype=BF16, device="meta")
    a = whole[:, : 256 * 512].view(3, 256, 512)
    text = tcgemm.check_layout(a, meta("contiguous", 3, 512, 64))
    assert "its batch stride is not a multiple of 16 bytes" in text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8], ids=str)
def test_explain_of_a_sparse_tensor(dtype):
    x, w = torch.ones(16, 64).to(dtype), torch.ones(48, 64).to(dtype)
    w = tcgemm.compress24(w, prune=True)
    for a, b in ((x, w.t()), (w, x.t())):
        assert kernel_name(a, b, device=H200).endswith("_sparse")
        assert "sparse" in tcgemm.check_layout(a, b, device=H200)
    across = kernel_name(x[:, :48], w, device=H200)  # to_dense()
    assert not across.endswith("_sparse")
    if dtype is torch.float32:
        medium = kernel_name(x, w.t(), device=H200, precision="medium")
        assert "bf16_f32" in medium and medium.endswith("_sparse")


def memory_kib() -> int:
    """Resident memory of this process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def test_the_examples_of_the_documentation_run(capsys):
    names = pages.run("docs/guides/explain.md")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == str(2 * (2 * 8 * 32 * 64)) and lines[-2].startswith("ab ")
    table = (ROOT / "docs/guides/explain.md").read_text().split("| field |")[1].split("\n\n")[0]
    fields = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert fields == set(names["answer"].fields)


def test_explain_leaks_no_memory():
    """torch 2.11 leaks its copy of a string that an operator returns, here 1.5 KB a call."""
    a = meta("contiguous", 512, 512)

    def ask():
        for _ in range(2000):
            tcgemm.explain(a, a)

    ask()
    before = memory_kib()
    ask()
    assert memory_kib() - before < 1000


def test_explain_of_fake_tensors():
    with FakeTensorMode():
        a = torch.empty(512, 512)
        assert "512 x 512, f32 to f32" in tcgemm.explain(a, a)


def test_explain_interrupts_a_compiled_function():
    def product(a):
        return tcgemm.mm(a, a), tcgemm.explain(a, a)

    a = torch.randn(8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out, text = torch.compile(product, backend="eager")(a)
    assert torch.equal(out, tcgemm.mm(a, a)) and text == tcgemm.explain(a, a)
