"""Under torch.compile products become torch.ops.tcgemm_use.product with their epilogue."""

import uuid
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import tcgemm
from tcgemm.ops.activations import ACTIVATIONS, activate
from tcgemm.override import fold

from support import programs, reference
from support.uses import by_torch, integers

config = torch._inductor.config


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    assert config.post_grad_custom_pre_pass is None


def functions(u):
    """The calls that tcgemm ran, by function."""
    calls = Counter()
    for row in u.report().rows:
        if row.reason is None:
            calls[row.function] += row.calls
    return calls


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_activations_are_folded(dtype):
    """One function with all of them: each compilation takes a second."""
    x, w = (torch.randn(*shape).to(dtype) for shape in ((32, 64), (48, 64)))
    bias, residual = torch.randn(48).to(dtype), torch.randn(32, 48).to(dtype)

    def function(x, w, bias, residual):
        results = [
            activate(F.linear(x * 2**step, w, bias), name) + residual  # equal products would be one
            for step, name in enumerate((None, *ACTIVATIONS))
        ]
        return torch.stack(results)

    expected = by_torch(function, x, w, bias, residual)
    with tcgemm.use() as u, torch.no_grad():
        result = torch.compile(function, fullgraph=True)(x, w, bias, residual)
    assert result.dtype is dtype and torch.allclose(result, expected, atol=0.05, rtol=0.05)
    assert u.report().left == 0
    assert functions(u) == {
        "compiled mm + c + bias": 1,
        **{f"compiled mm + bias + {name} + residual": 1 for name in ACTIVATIONS},
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_patterns_are_those_of_torch(dtype, name):
    """Every activation is recognised by its own pattern alone, in each dtype."""
    graph = fold._decomposed(ACTIVATIONS[name].function, dtype)
    start = next(node for node in graph.nodes if node.op == "placeholder")
    names = [
        other for other, pattern in fold.patterns_of(dtype).items() if fold.match(pattern, start)
    ]
    assert names == [name]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_argument_that_is_read_again_is_not_folded(name):
    """The result of the product must be in memory then."""
    function = ACTIVATIONS[name].function
    graph = fold._decomposed(lambda x: function(x) + x, torch.float32)
    start = next(node for node in graph.nodes if node.op == "placeholder")
    patterns = fold.patterns_of(torch.float32)
    assert not any(fold.match(pattern, start) for pattern in patterns.values())


CASES = {
    "mm": (lambda a, b, r, v: a @ b, "compiled mm"),
    "a row": (lambda a, b, r, v: a @ b + v, "compiled mm + bias"),
    "a matrix": (lambda a, b, r, v: r + a @ b, "compiled mm + c"),
    "two": (lambda a, b, r, v: (a @ b + r) + v, "compiled mm + c + bias"),
    "two matrices": (lambda a, b, r, v: (a @ b + r) + 2 * r, "compiled mm + c + residual"),
    "addmm": (
        lambda a, b, r, v: torch.addmm(r, a, b, beta=2, alpha=3).relu() + r,
        "compiled mm + c + relu + residual",
    ),
    "views": (
        lambda a, b, r, v: F.linear(a.view(2, -1, 6), b.t(), v).relu() + r.view(2, -1, 5),
        "compiled mm + bias + relu + residual",
    ),
    "bmm": (
        lambda a, b, r, v: torch.bmm(a.view(2, -1, 6), b.expand(2, 6, 5)).relu(),
        "compiled bmm + relu",
    ),
    "baddbmm": (
        lambda a, b, r, v: torch.baddbmm(v, a.view(2, -1, 6), b.expand(2, 6, 5)),
        "compiled bmm + bias",
    ),
    "a column": (lambda a, b, r, v: a @ b + r[:, :1], "compiled mm"),
    "read twice": (lambda a, b, r, v: (lambda y: y.relu() + y)(a @ b), "compiled mm"),
    "twice itself": (lambda a, b, r, v: (lambda y: y + y)(a @ b), "compiled mm"),
    "another dtype": (lambda a, b, r, v: a @ b + r.double(), "compiled mm"),
    "alpha of add": (lambda a, b, r, v: torch.add(a @ b, r, alpha=2), "compiled mm"),
    "a row of rows": (lambda a, b, r, v: (a @ b).view(5, -1) + r.view(5, -1)[0], "compiled mm"),
}


def test_what_is_folded_and_what_not():
    """All cases are one graph, since each compilation takes seconds; the rows of a tell them
    apart."""
    b, row = integers(6, 5), integers(5)
    sizes = {8 * step: case for step, case in enumerate(CASES.values(), 1)}
    operands = [(integers(rows, 6), integers(rows, 5)) for rows in sizes]

    def function(b, row, operands):
        cases = zip(sizes.values(), operands, strict=True)
        return [case(a, b, r, row) for (case, _label), (a, r) in cases]

    expected = by_torch(function, b, row, operands)
    with tcgemm.use() as u, torch.no_grad():
        results = torch.compile(function, fullgraph=True)(b, row, operands)
    for result, value in zip(results, expected, strict=True):
        reference.assert_exact(result, value)
        assert result.stride() == value.stride()
    report = u.report()
    labels = {row.sizes[0] * row.sizes[1]: row.function for row in report.rows}
    assert labels == {rows: label for rows, (_case, label) in sizes.items()} and report.left == 0


def test_training():
    x, w, bias = (torch.randn(*s, requires_grad=True) for s in ((8, 16), (12, 16), (12,)))

    def function(x, w, bias):
        return F.relu(F.linear(x, w, bias)).pow(2).sum()

    expected = by_torch(lambda: torch.autograd.grad(function(x, w, bias), (x, w, bias)))
    with tcgemm.use() as u:
        loss = torch.compile(function, fullgraph=True)(x, w, bias)
        result = torch.autograd.grad(loss, (x, w, bias))
    assert all(torch.allclose(*pair, atol=1e-4) for pair in zip(result, expected, strict=True))
    assert functions(u) == {"compiled mm + bias": 1, "compiled mm": 2}


def test_dynamic_sizes():
    w, bias, residual = integers(5, 6), integers(5), integers(64, 5)

    def function(x, residual):
        return F.relu(F.linear(x, w, bias)).view(2, -1, 5) + residual.view(2, -1, 5)

    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    with tcgemm.use() as u, torch.no_grad():
        for rows in (8, 12, 64):
            x = integers(rows, 6)
            result = compiled(x, residual[:rows])
            reference.assert_exact(result, by_torch(function, x, residual[:rows]))
    assert functions(u) == {"compiled mm + bias + relu + residual": 3}


def test_compiled_code_obeys_the_use_that_is_active_when_it_runs():
    a, b, r = torch.randn(8, 6), torch.randn(6, 5), torch.randn(8, 5)

    def function(a, b, r):
        return F.gelu(a @ b) + r

    expected = function(a, b, r)
    compiled = torch.compile(function, fullgraph=True)
    with tcgemm.use() as u:
        within = compiled(a, b, r)
    assert torch.allclose(within, expected, atol=1e-5) and u.report().taken == 1
    assert torch.equal(compiled(a, b, r), expected)  # torch's kernels
    assert u.report().taken == 1
    with tcgemm.use(dtypes=("bf16",)) as other:
        assert torch.equal(compiled(a, b, r), expected)
    assert other.report().reasons == {"torch.float32 is not among dtypes": 1}
    with u:
        assert torch.equal(compiled(a, b, r), within)
    assert u.report().taken == 2


def test_code_compiled_before_calls_torchs_functions_which_are_taken():
    a, b = torch.randn(8, 6), torch.randn(6, 5)
    compiled = torch.compile(lambda a, b: F.gelu(a @ b), fullgraph=True)
    before = compiled(a, b)
    with tcgemm.use() as u:
        assert torch.allclose(compiled(a, b), before, atol=1e-5)
    assert functions(u) == {"mm": 1}
    assert torch.equal(compiled(a, b), before)


def test_the_choice_is_made_when_compiling_too():
    a, b, c = integers(8, 6), integers(6, 5), integers(32, 6)

    def function(a, b, c):
        return (a @ b).relu().sum() + (c @ b).relu().sum() + (a.double() @ b.double()).sum()

    with tcgemm.use(min_size=5, min_flops=2 * 32 * 6 * 5, dtypes=("f32",)) as u:
        torch.compile(function, fullgraph=True)(a, b, c)
    assert functions(u) == {"compiled mm + relu": 1}
    assert {row.function for row in u.report().rows if row.reason} == {"mm"}


class Marks:
    """A pass of somebody else, which counts its calls. No cache knows its key."""

    calls = 0
    key = uuid.uuid4().hex

    def __call__(self, graph):
        self.calls += 1

    def uuid(self):
        return self.key


def test_code_for_a_process_without_python_is_left_alone():
    def targets(graph):
        return [str(node.target) for node in graph.nodes if node.op == "call_function"]

    with torch._subclasses.FakeTensorMode():
        args = torch.ones(4, 5), torch.ones(5, 6)
        traced = make_fx(lambda a, b: torch.mm(a, b).relu())(*args)
    with tcgemm.use():
        with torch._inductor.virtualized.V.set_aot_compilation(True):
            fold.FoldPass(None)(traced.graph)
        assert targets(traced.graph) == ["aten.mm.default", "aten.relu.default"]
        fold.FoldPass(None)(traced.graph)
        assert targets(traced.graph) == ["tcgemm_use.product.default"]


def test_a_pass_of_somebody_else_goes_on():
    torch._inductor.custom_graph_pass.CustomGraphPass.register(Marks)
    marks = Marks()
    with config.patch(post_grad_custom_pre_pass=marks):
        with tcgemm.use() as u:
            torch.compile(lambda a: a @ a)(torch.ones(4, 4))
            assert config.post_grad_custom_pre_pass.uuid()[1] == marks.key
        assert config.post_grad_custom_pre_pass is marks and marks.calls == 1
    assert functions(u) == {"compiled mm": 1}
    with config.patch(post_grad_custom_pre_pass=lambda graph: None), tcgemm.use():
        assert config.post_grad_custom_pre_pass.uuid() is None


def test_a_pass_that_was_set_meanwhile_stays():
    with config.patch(post_grad_custom_pre_pass=None):
        marks = Marks()
        with tcgemm.use():
            config.post_grad_custom_pre_pass = marks
        assert config.post_grad_custom_pre_pass is marks


def test_caches_of_compiled_code_tell_choices_apart():
    keys = []
    for options in ({}, {"dtypes": ("f32",)}, {"min_size": 3}, {"min_flops": 3}, {}):
        with tcgemm.use(**options):
            keys.append(config.post_grad_custom_pre_pass.uuid())
    assert keys[0] == keys[4] and len(set(keys)) == 4


@pytest.mark.nightly
def test_inductor_is_not_imported_for_a_use_and_gets_the_pass_later():
    program = """
import sys, torch, tcgemm

def waiting():
    return [finder.module for finder in sys.meta_path if hasattr(finder, "functions")]

before = waiting()
assert before and "torch._inductor.config" not in before
with tcgemm.use():
    assert "torch._inductor.config" in waiting()
    torch.mm(torch.ones(2, 3), torch.ones(3, 4))
assert "torch._inductor.config" not in sys.modules
assert waiting() == before
with tcgemm.use() as u:
    y = torch.compile(lambda x: (x @ x).relu())(torch.ones(8, 8))
    assert [row.function for row in u.report().rows] == ["compiled mm + relu"], u.report()
assert torch._inductor.config.post_grad_custom_pre_pass is None
assert set(waiting()) <= set(before)
"""
    process = programs.run(program)
    assert process.returncode == 0, process.stderr


def test_the_operator():
    samples = (
        ((integers(3, 4), integers(4, 5)), {}),
        ((integers(3, 4), integers(4, 5), integers(3, 5), integers(5), integers(3, 5)), {}),
        (
            (integers(2, 3, 4), integers(2, 4, 5), integers(2, 3, 5)),
            {"alpha": 2.0, "beta": -1.0, "activation": "relu"},
        ),
    )
    operator = torch.ops.tcgemm_use.product.default
    for args, options in samples:
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(operator, args, options, test_utils=tests)
        expected = operator(*args, **options)
        with tcgemm.use() as u:
            torch.library.opcheck(operator, args, options, test_utils=tests)
            reference.assert_exact(operator(*args, **options), expected)
        assert u.report().left == 0
