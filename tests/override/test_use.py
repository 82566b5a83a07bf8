"""When a tcgemm.use begins and ends, and that torch is as before when none is active."""

import gc
import os
import threading

import pytest
import torch

import tcgemm

from support import programs
from support.calls import Recorder
from support.uses import registered_kernels

A = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
W = torch.randn(5, 8, generator=torch.Generator().manual_seed(4))


def product():
    return torch.mm(A, W.t())


def counts(use):
    report = use.report()
    return report.taken, report.left


@pytest.fixture(autouse=True)
def torch_is_as_before():
    before = registered_kernels()
    yield
    assert registered_kernels() == before


def test_a_block_takes_products_and_ends():
    before = product()
    with tcgemm.use() as u:
        assert u.active and registered_kernels()[0].count("tcgemm/override")
        within = product()
    assert not u.active and counts(u) == (1, 0)
    assert torch.equal(within, tcgemm.mm(A, W.t()))
    assert torch.equal(product(), before) and counts(u) == (1, 0)


def test_a_call_begins_and_end_ends():
    u = tcgemm.use()
    product()
    u.end()
    u.end()
    product()
    assert counts(u) == (1, 0) and not u.active


def test_a_use_made_before_its_block():
    u = tcgemm.use()
    with u:
        product()
    assert not u.active and counts(u) == (1, 0)
    with u:  # again; the counts go on
        product()
        with u:
            product()
        assert u.active
        product()
    assert not u.active and counts(u) == (4, 0)
    u.reset()
    assert counts(u) == (0, 0)


def test_end_inside_the_block():
    with tcgemm.use() as u:
        u.end()
        product()
    assert not u.active and counts(u) == (0, 0)


def test_the_last_of_nested_uses_decides_and_counts():
    with tcgemm.use() as outer:
        product()
        with tcgemm.use(dtypes=()) as inner:
            product()
        product()
    assert counts(outer) == (2, 0) and counts(inner) == (0, 1)


def test_uses_that_overlap():
    first, second = tcgemm.use(), tcgemm.use(dtypes=("f64",))
    first.end()
    product()
    assert counts(first) == (0, 0) and counts(second) == (0, 1)
    third = tcgemm.use()
    second.end()
    product()
    third.end()
    assert counts(third) == (1, 0)


def test_an_exception_ends_the_block():
    with pytest.raises(ZeroDivisionError), tcgemm.use() as u:
        raise ZeroDivisionError
    assert not u.active


def test_a_generator_that_is_dropped_ends_its_block():
    def generator():
        with tcgemm.use() as u:
            yield u
            yield u

    steps = generator()
    u = next(steps)
    product()
    assert u.active
    del steps
    gc.collect()
    assert not u.active and counts(u) == (1, 0)


def test_a_use_that_nobody_holds_goes_on():
    tcgemm.use()
    gc.collect()
    assert "tcgemm/override" in registered_kernels()[0]
    use = next(item for item in gc.get_objects() if type(item).__name__ == "Use" and item.active)
    product()
    use.end()
    assert counts(use) == (1, 0)


def test_bad_arguments_begin_nothing():
    with pytest.raises(ValueError, match=r"tcgemm\.use: dtypes has 'words'"):
        tcgemm.use(dtypes=("words",))


def test_all_threads_take_part_and_no_call_is_lost():
    ends = threading.Barrier(4)

    def work():
        for _ in range(500):
            product()
        ends.wait()

    with tcgemm.use() as u:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        ends.wait()
        for thread in threads:
            thread.join()
    assert counts(u) == (1500, 0)


def test_beginning_and_ending_while_other_threads_multiply():
    expected, stop, wrong = product(), threading.Event(), []

    def work():
        while not stop.is_set():
            if not torch.allclose(product(), expected, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        with tcgemm.use():
            product()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_backward_runs_in_it():
    x = A.clone().requires_grad_()
    with tcgemm.use() as u:
        torch.nn.functional.linear(x, W).sum().backward()
    assert counts(u) == (2, 0)
    with tcgemm.use(dtypes=()):
        expected = torch.autograd.grad(torch.nn.functional.linear(x, W).sum(), x)[0]
    assert torch.allclose(x.grad, expected, atol=1e-5)


def test_a_forked_child_has_its_own_counts():
    with tcgemm.use() as u:
        product()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                product()
                with tcgemm.use() as other:
                    product()
                status = 0 if (counts(u), counts(other)) == ((2, 0), (1, 0)) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert counts(u) == (1, 0)


def test_other_operators_and_modes_see_nothing_of_it():
    with tcgemm.use() as u, Recorder() as recorder:
        torch.nn.functional.linear(A, W, torch.zeros(5))
    assert recorder.rows == ["aten.zeros.default", "aten.t.default", "aten.addmm.default"]
    assert counts(u) == (1, 0)


@pytest.mark.parametrize("end", ["", "u.end()", "import sys; sys.exit(0)"])
def test_a_program_may_end_while_it_is_active(end):
    program = f"""
import torch, tcgemm
u = tcgemm.use()
torch.mm(torch.ones(3, 4), torch.ones(4, 5))
class Late:
    def __del__(self):
        torch.mm(torch.ones(3, 4), torch.ones(4, 5))
late = Late()
assert u.report().taken == 1
{end}
"""
    process = programs.run(program)
    assert (process.returncode, process.stderr) == (0, "")


def test_a_use_inside_a_compiled_function_is_refused():
    def function(x):
        with tcgemm.use():
            return x @ x

    compiled = torch.compile(function, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="tcgemm") as excinfo:
        compiled(torch.ones(2, 2))
    assert "outside" in str(excinfo.value)


def test_tcgemms_own_functions_are_as_without_it():
    x, layer = A.bfloat16(), tcgemm.nn.Linear(8, 5).bfloat16()
    sparse = tcgemm.compress24(W.bfloat16(), prune=True)
    calls = (
        lambda: tcgemm.mm(A, W.t()),
        lambda: layer(x),
        lambda: torch.nn.functional.linear(x, sparse),
        lambda: tcgemm.quantized_linear(x, W.bfloat16(), dtype=torch.int8),
    )
    before = [call() for call in calls]
    with tcgemm.use() as u:
        within = [call() for call in calls]
    assert all(map(torch.equal, before, within)) and counts(u) == (0, 0)


def test_repr_says_if_it_is_active():
    with tcgemm.use() as u:
        product()
        assert repr(u) == "<tcgemm.use active: 1 products taken, 0 left to torch>"
    assert repr(u).startswith("<tcgemm.use ended")
