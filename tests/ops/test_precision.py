"""precision: what each word does to float32 operands, which word None is, and who gets it.

That None means torch's setting is about CUDA; here it is seen on fake CUDA tensors, of which the
operators' arguments are recorded, and by the results of words that the CPU computes too.
"""

import re
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tcgemm
from tcgemm.cli import explain
from tcgemm.ops import precision

from support.calls import Recorder
from support.cases import gpu

A, B = torch.randn(8, 64), torch.randn(64, 6)


def tf32(x):
    """Rounded to 10 bits after the point, to nearest even."""
    bits = x.view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


ROUNDED = {"highest": lambda x: x, "high": tf32, "medium": lambda x: x.bfloat16().float()}


def word_of(out, a, b):
    """The word whose rounding of the operands gives this result."""
    errors = {w: (out - f(a).double() @ f(b).double()).abs().max() for w, f in ROUNDED.items()}
    word = min(errors, key=errors.get)
    assert errors[word] < 1e-4
    return word


@pytest.fixture(autouse=True)
def as_before():
    """torch's settings are left as they were found."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.fp32_precision = "none"


def precision_of(func, args, kwargs):
    """The precision that a product got."""
    return [kwargs.get("precision")] if func.namespace == "tcgemm" else []


@pytest.mark.parametrize("word", ROUNDED)
def test_words_round_the_operands(word):
    calls = (
        lambda **o: tcgemm.mm(A, B, **o),
        lambda **o: tcgemm.matmul(A[None], B, **o)[0],
        lambda **o: tcgemm.bmm(A[None], B[None], **o)[0],
        lambda **o: tcgemm.addmm(torch.zeros(6), A, B, **o),
        lambda **o: tcgemm.linear(A, B.t(), **o),
        lambda **o: tcgemm.mm(A, B, **o, scale_a=torch.tensor(1.0)),
        lambda **o: tcgemm.mm(A, B, **o, out=torch.empty(8, 6)),
    )
    for call in calls:
        assert word_of(call(precision=word), A, B) == word
    assert torch.equal(tcgemm.mm(A, B, precision="highest"), tcgemm.mm(A, B))


def test_none_on_the_cpu_is_the_operands_own_precision():
    torch.set_float32_matmul_precision("medium")
    with Recorder(precision_of) as words:
        assert word_of(tcgemm.mm(A, B), A, B) == "highest"
        tcgemm.linear(A, B.t(), scale_a=torch.tensor(1.0))
    assert words.rows == [None, None]


@pytest.mark.parametrize("word", ROUNDED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8])
def test_words_mean_nothing_to_other_dtypes(word, dtype):
    a, b = A.to(dtype), B.to(dtype)
    assert torch.equal(tcgemm.mm(a, b, precision=word), tcgemm.mm(a, b))


def test_words_of_float8():
    a, b = A.to(torch.float8_e4m3fn), B.to(torch.float8_e4m3fn)
    for word in (None, "promoted", "fast"):
        torch.testing.assert_close(
            tcgemm.mm(a, b, precision=word, out_dtype=torch.float32), a.float() @ b.float()
        )
    with pytest.raises(RuntimeError, match='precision is "high", but fp8 products are "promoted"'):
        tcgemm.mm(a, b, precision="high")
    with pytest.raises(RuntimeError, match=r'precision is "fast", but for torch.float32 there are'):
        tcgemm.mm(A, B, precision="fast")


def older(word):
    torch.set_float32_matmul_precision(word)


def newer(word):
    torch.backends.cuda.matmul.fp32_precision = word


def newest(word):
    torch.backends.fp32_precision = word


SETTINGS = [
    ((), "highest"),
    (((older, "highest"),), "highest"),
    (((older, "high"),), "high"),
    (((older, "medium"),), "medium"),
    (((newer, "ieee"),), "highest"),
    (((newer, "tf32"),), "high"),
    (((newest, "ieee"),), "highest"),
    (((newest, "tf32"),), "high"),
    (((newest, "bf16"),), "medium"),
    (((newest, "tf32"), (newer, "ieee")), "highest"),
    (((newest, "ieee"), (newer, "tf32")), "high"),
    (((newest, "tf32"), (newer, "none")), "high"),
    # Both were used: what torch's own products obey is the newer one, where the older writes too.
    (((older, "high"), (newer, "ieee")), "highest"),
    (((older, "medium"), (newer, "ieee")), "highest"),
    (((newer, "tf32"), (older, "highest")), "highest"),
    (((newer, "ieee"), (older, "medium")), "medium"),
    (((older, "highest"), (newer, "tf32")), "high"),
]


@pytest.mark.parametrize(
    ("settings", "word"),
    SETTINGS,
    ids=lambda v: "-".join(f"{f.__name__}:{w}" for f, w in v) if isinstance(v, tuple) else v,
)
def test_none_is_what_torch_would_use(settings, word):
    for setting, value in settings:
        setting(value)
    assert precision.default() == word
    with FakeTensorMode(), Recorder(precision_of) as words:
        a, b = torch.empty(8, 64, device="cuda"), torch.empty(64, 6, device="cuda")
        scale = torch.empty((), device="cuda")
        tcgemm.mm(a, b)
        tcgemm.linear(a, b.t(), scale_a=scale)
        tcgemm.mm(a, b, precision="medium")
        tcgemm.mm(a.half(), b.half())
        tcgemm.mm(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), scale_a=scale)
        tcgemm.mm(a, b, precision="highest")
    word = None if word == "highest" else word  # which is the operators' None
    assert words.rows == [word, word, "medium", None, None, None]


class Words:
    """torch.backends of a torch that has other words."""

    def __init__(self, matmul, own="none"):
        self.cuda = self.matmul = self
        self.words = [own, matmul]

    @property
    def fp32_precision(self):
        return self.words.pop()


def test_words_of_newer_versions_of_torch(monkeypatch):
    for words in (("bfx9",), ("none", "bfx9")):
        monkeypatch.setattr(precision, "_backends", Words(*words))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert precision.default() == "highest"
    for words, unknown in ((("fp19",), "fp19"), (("none", "bf17"), "bf17")):
        monkeypatch.setattr(precision, "_backends", Words(*words))
        with pytest.warns(UserWarning, match=f"fp32_precision is '{unknown}', a word that this"):
            assert precision.default() == "highest"
        monkeypatch.setattr(precision, "_backends", Words(*words))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it warns once
            assert precision.default() == "highest"


def test_compiled_graphs_of_an_unknown_word(monkeypatch):
    class Backends:
        fp32_precision = "fp20"

    Backends.cuda = Backends.matmul = Backends
    monkeypatch.setattr(precision, "_backends", Backends)
    torch._dynamo.reset()
    compiled = torch.compile(as_torch_says, fullgraph=True, backend="aot_eager")
    with pytest.warns(UserWarning, match="fp32_precision is 'fp20'"):
        assert word_of(compiled(A, B), A, B) == "highest"


def test_explain_answers_for_the_word_in_force(capsys):
    a = torch.empty(512, 512, device="meta")
    for word, name in (("high", "tf32"), ("medium", "bf16")):
        older(word)
        assert f"f32 as {name}" in tcgemm.explain(a, a, device="H200")
        assert f"f32 as {name}" in tcgemm.explain(a, a, device="H200", precision=word)
        older("highest")
        explain.run(["512", "512", "512", "--dtype", "f32", "--precision", word])
        assert f"f32 as {name}" in capsys.readouterr().out
    assert re.search(r"\n  precision +highest: ", tcgemm.explain(a, a, device="H200"))
    assert tcgemm.explain(a, a, device="H200") == tcgemm.explain(a, a, precision="highest")


def test_allow_tf32_is_the_older_setting():
    torch.backends.cuda.matmul.allow_tf32 = True
    assert precision.default() == "high"
    torch.backends.cuda.matmul.allow_tf32 = False
    assert precision.default() == "highest"


def test_what_none_was_is_kept_for_the_backward():
    older("high")
    with FakeTensorMode():
        a, b = torch.empty(8, 64, device="cuda"), torch.empty(64, 6, device="cuda")
        for out in (
            tcgemm.mm(a.requires_grad_(), b, activation="gelu"),
            tcgemm.mm(a, b, scale_a=torch.empty((), device="cuda")),
        ):
            assert out.grad_fn.epilogue.precision == "high"


@pytest.mark.parametrize("word", ROUNDED)
def test_derivatives_are_rounded_as_the_product_is(word):
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    out = tcgemm.mm(a, b, precision=word)
    g = torch.randn(8, 6)
    ga, gb = torch.autograd.grad(out, (a, b), g)
    assert word_of(ga, g, B.t()) == word_of(gb, A.t(), g) == word
    ta = torch.randn(8, 64)
    _, tangent = torch.func.jvp(lambda a: tcgemm.mm(a, B, precision=word), (A,), (ta,))
    assert word_of(tangent, ta, B) == word
    stack = torch.func.vmap(lambda a: tcgemm.mm(a, B, precision=word))(A[None])
    assert word_of(stack[0], A, B) == word


def as_torch_says(a, b):
    """The precision of float32 operands on CUDA, for a machine with a CPU alone."""
    return tcgemm.mm(a, b, precision=precision.default())


@pytest.mark.parametrize("device", ["cpu", gpu("cuda", mark="sm90")])
def test_compiled_graphs_hold_it_constant(device):
    function = as_torch_says if device == "cpu" else tcgemm.mm
    a, b = A.to(device), B.to(device)
    older("high")
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")

    def word():
        return word_of(compiled(a, b).cpu(), A, B)

    assert word() == "high"
    older("medium")  # TF32 is allowed as before: torch sees no reason to compile anew
    assert word() == "high"
    torch._dynamo.reset()
    assert word() == "medium"
    older("highest")
    assert word() == "highest"
    newer("tf32")  # the newer setting alone, which makes torch's older getter raise
    torch._dynamo.reset()
    assert word() == "high"
    newer("ieee")
    assert word() == "highest"
    newest("tf32")
    newer("none")
    assert word() == "high"


def test_backward_of_a_compiled_graph():
    torch._dynamo.reset()
    compiled = torch.compile(as_torch_says, fullgraph=True, backend="aot_eager")
    older("medium")
    a = A.clone().requires_grad_()
    out = compiled(a, B)
    older("highest")
    g = torch.randn(8, 6)
    (ga,) = torch.autograd.grad(out, a, g)
    assert word_of(out.detach(), A, B) == word_of(ga, g, B.t()) == "medium"


@pytest.mark.gpu
@pytest.mark.sm90
def test_float32_on_cuda():
    a, b = A.cuda().requires_grad_(), B.cuda()
    assert word_of(torch.ops.tcgemm.mm(a.detach(), b).cpu(), A, B) == "highest"
    for word in ("highest", "high", "medium"):
        older(word)
        out, g = tcgemm.mm(a, b), torch.randn(8, 6)
        assert word_of(out.detach().cpu(), A, B) == word
        older("highest")
        out.backward(g.cuda())
        assert word_of(a.grad.cpu(), g, B.t()) == word
        a.grad = None
