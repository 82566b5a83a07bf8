"""Each private function of torch that tcgemm calls does what tcgemm expects of it.

A failure here says which name of tcgemm/ops/_torch_private.py a new torch has changed.
"""

import os
import sys

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import tcgemm
from tcgemm.ops import _torch_private as private


class Wrapper(torch.Tensor):
    """A tensor of a shape, without memory."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func


def test_any_autocast_enabled():
    with torch.autocast("cpu", torch.bfloat16):
        assert private.any_autocast_enabled()
    assert not private.any_autocast_enabled()


def test_any_requires_grad():
    plain, leaf = torch.zeros(1), torch.zeros(1, requires_grad=True)
    assert private.any_requires_grad(None, plain, leaf)
    assert not private.any_requires_grad(None, plain)


def test_at_start_of_cuda():
    counts = []
    private.at_start_of_cuda(lambda: counts.append(torch.cuda.device_count()))
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")
        assert counts
    else:
        assert not counts


def test_assume_constant_result():
    torch._dynamo.reset()

    @private.assume_constant_result
    def constant():
        with open(os.devnull):  # which torch.compile cannot trace
            return 3

    compiled = torch.compile(lambda x: x + constant(), fullgraph=True, backend="eager")
    assert compiled(torch.zeros(1)).item() == 3


def test_below_dispatch_modes():
    class Refuse(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise AssertionError(func)

    with Refuse(), private.below_dispatch_modes():
        assert torch.equal(torch.ones(2), torch.ones(2))


def test_has_kernel():
    assert private.has_kernel("aten::mm.out", "CPU")
    assert not private.has_kernel("aten::mm.dtype", "CPU")  # which torch has for CUDA alone
    assert private.has_kernel("aten::_grouped_mm", "CPU")  # by its alias of all devices


def jagged():
    return torch.nested.nested_tensor([torch.zeros(3, 2), torch.zeros(5, 2)], layout=torch.jagged)


def test_is_wrapper():
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    assert private.is_wrapper(nested) and not private.is_wrapper(torch.zeros(2))
    assert not private.is_wrapper(torch.nn.Parameter(torch.zeros(2)))


def test_nested_tensor():
    assert type(jagged()) is private.NestedTensor


def test_known_lengths():
    assert private.known_lengths(jagged()) == (3, 5)
    values, offsets = jagged().values(), jagged().offsets()
    nested = torch.nested.nested_tensor_from_jagged(values, offsets)
    assert private.known_lengths(nested) == (None, None)


def test_ragged_dim():
    assert private.ragged_dim(jagged()) == 1
    assert private.ragged_dim(jagged().transpose(1, 2)) == 2


def test_below_transform():
    def inside(x):
        assert private.below_transform(x).shape == (3, 2)
        return x

    torch.vmap(inside)(torch.zeros(3, 2))


def test_below_autograd():
    leaf = torch.zeros(1, requires_grad=True)
    with private.below_autograd():
        assert leaf.sin().grad_fn is None
    assert leaf.sin().grad_fn is not None


def test_check():
    private.check(True, lambda: "unused")
    with pytest.raises(RuntimeError, match="a sentence"):
        private.check(False, lambda: "a sentence")


def test_compiles_ahead_of_time():
    assert private.compiles_ahead_of_time() is False
    with torch._inductor.virtualized.V.set_aot_compilation(True):
        assert private.compiles_ahead_of_time() is True


def test_destroy_library():
    library = torch.library.Library("tcgemm_test", "FRAGMENT")
    library.define("zero(Tensor x) -> Tensor")
    assert torch.ops.tcgemm_test.zero.default
    private.destroy_library(library)
    with pytest.raises(AttributeError):
        torch.ops.tcgemm_test.zero.default  # noqa: B018


def test_dispatch_keys():
    assert private.dispatch_keys("CPU").has(torch._C.DispatchKey.CPU)
    assert not private.dispatch_keys("CPU").has(torch._C.DispatchKey.CUDA)


def test_device_free_kernel():
    kernel = private.device_free_kernel(torch.ops.tcgemm.mm.default)
    a, b = torch.zeros(2, 3, device="meta"), torch.zeros(3, 4, device="meta")
    with private.below_dispatch_modes():
        assert kernel(a, b).shape == (2, 4)
    with pytest.raises(RuntimeError, match=r"b is torch\.float16, but a is torch.float32"):
        kernel(a, b.half())


def test_dispatch_modes():
    assert private.dispatch_modes() == 0
    with torch._subclasses.FakeTensorMode():
        assert private.dispatch_modes() == 1


class Double(private.SingleLevelFunction):
    """2 * x, with a derivative."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def test_single_level_function():
    leaf = torch.ones(1, requires_grad=True)
    Double.apply(leaf).backward()
    assert leaf.grad.item() == 2


def test_enable_single_level_autograd_function():
    with private.enable_single_level_autograd_function():
        test_single_level_function()


def test_foreach_copy():
    targets = [torch.zeros(2), torch.zeros(1, 3)]
    private.foreach_copy(targets, [torch.ones(2), torch.full((1, 3), 2.0)])
    assert [tensor.sum().item() for tensor in targets] == [2, 6]


def test_forward_gradients():
    with forward_ad.dual_level(), private.forward_gradients(False):
        dual = forward_ad.make_dual(torch.zeros(1), torch.ones(1))
        assert forward_ad.unpack_dual(dual.sin()).tangent is None
        with private.forward_gradients(True):
            assert forward_ad.unpack_dual(dual.sin()).tangent.item() == 1


def test_graph_pass_class():
    class Pass:
        """It has the two methods of the base class."""

    private.graph_pass_class().register(Pass)
    assert isinstance(Pass(), torch._inductor.custom_graph_pass.CustomGraphPass)
    assert {"__call__", "uuid"} == private.graph_pass_class().__abstractmethods__


def test_inductor_config():
    import torch._inductor.config

    module = sys.modules[private.INDUCTOR_CONFIG]
    assert module is torch._inductor.config and module.post_grad_custom_pre_pass is None


def test_inductor_decompositions():
    assert torch.ops.aten.gelu.default in private.inductor_decompositions()


def test_in_dual_level():
    assert not private.in_dual_level()
    with forward_ad.dual_level():
        assert private.in_dual_level()


def test_is_exporting():
    class Says(torch.nn.Module):
        def forward(self, x):
            return x + 1 if private.is_exporting() else x

    one, two = torch.ones(1), torch.full((1,), 2.0)
    assert torch.equal(Says()(one), one)
    assert torch.equal(torch.compile(Says(), backend="eager", fullgraph=True)(one), one)
    for strict in (False, True):
        program = torch.export.export(Says(), (one,), strict=strict)
        assert torch.equal(program.module()(one), two)


def test_is_mutable():
    assert private.is_mutable(torch.ops.aten.add_.Tensor)
    assert private.is_mutable(torch.ops.aten.add.out)
    assert not private.is_mutable(torch.ops.aten.add.Tensor)


def test_is_batched():
    flags = []
    torch.vmap(lambda x: flags.append(private.is_batched(x)) or x)(torch.zeros(2))
    assert flags == [True] and not private.is_batched(torch.zeros(2))


def test_is_gradient_batch():
    flags = []
    x = torch.zeros(2, requires_grad=True)
    y = x * 1
    y.register_hook(lambda g: flags.append(private.is_gradient_batch(g)))
    torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True)
    assert flags == [True] and not private.is_gradient_batch(torch.zeros(2))


def test_is_profiled():
    assert not private.is_profiled()
    with torch.autograd.profiler.profile():
        assert private.is_profiled()


def test_is_tracing():
    flags = []
    torch.jit.trace(lambda x: flags.append(private.is_tracing()) or x + 1, torch.zeros(1))
    assert flags[0] and not private.is_tracing()


def test_is_wrapped_by_transform():
    flags = []
    torch.func.grad(lambda x: flags.append(private.is_wrapped_by_transform(x)) or x)(torch.ones(()))
    assert flags == [True] and not private.is_wrapped_by_transform(torch.ones(()))


def test_mark_static_address():
    tensor = torch.zeros(1)
    private.mark_static_address(tensor)
    assert tensor._dynamo_static_input_type == "unguarded"


def test_results_are_plain():
    class Marked(torch.Tensor):
        __torch_function__ = private.results_are_plain

    assert type(torch.ones(2).as_subclass(Marked) + 1) is torch.Tensor


def test_no_torch_function():
    w = tcgemm.compress24(torch.ones(4, 8).half(), prune=True)
    with private.no_torch_function():
        assert not torch.overrides.has_torch_function((w,))
    assert torch.overrides.has_torch_function((w,))


def test_redispatch():
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    scaled_mm = private.redispatch(torch.ops.tcgemm.scaled_mm.default)
    assert torch.equal(scaled_mm(private.dispatch_keys("CPU"), a, b), a @ b)


def test_register_sharding():
    experimental = pytest.importorskip("torch.distributed.tensor.experimental")
    propagator = torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator
    op, options = torch.ops.tcgemm.mm.default, ("activation", "alpha", "beta")
    strategy, info = propagator.op_strategy_funcs[op], propagator.op_to_schema_info[op]
    private.register_sharding(op, lambda *args, **kwargs: [], options)
    assert propagator.op_to_schema_info[op].static_kwargkey == ["activation", "alpha"]
    assert experimental.register_sharding
    propagator.op_strategy_funcs[op], propagator.op_to_schema_info[op] = strategy, info


def test_size_hint():
    hints = []

    class Model(torch.nn.Module):
        def forward(self, x, mask):
            hints.extend(map(private.size_hint, (*x.shape, x[mask].shape[0])))
            return x + 1

    arguments = torch.zeros(3, 4), torch.zeros(3, dtype=torch.bool)
    dynamic = ({0: torch.export.Dim("rows")}, {0: torch.export.Dim("rows")})
    torch.export.export(Model(), arguments, dynamic_shapes=dynamic, strict=False)
    assert hints[:3] == [3, 4, None]


def test_tree_map_only():
    mapped = private.tree_map_only(int, str, (1, [2.0, {"a": 3}]))
    assert mapped == ("1", [2.0, {"a": "3"}])


def test_runs_as_it_is():
    flags = []

    def callee():
        flags.append(torch.compiler.is_compiling())

    @private.runs_as_it_is
    def function():
        callee()

    def backend(graph, _inputs):
        raise AssertionError(graph)

    torch._dynamo.reset()
    torch.compile(function, backend=backend)()
    assert flags == [False]


def test_transforms_active():
    flags = []
    torch.vmap(lambda x: flags.append(private.transforms_active()) or x)(torch.zeros(2))
    assert flags == [True] and not private.transforms_active()


def test_under_transform():
    flags = []
    torch.vmap(lambda x: flags.append(private.under_transform()) or x)(torch.zeros(2))
    with forward_ad.dual_level():
        flags.append(private.under_transform())
    assert flags == [True, True] and not private.under_transform()


def test_unpack_dual():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.zeros(1), torch.ones(1))
        primal, tangent = private.unpack_dual(dual, level=0)
    assert (primal.item(), tangent.item()) == (0, 1)


def test_without_modes():
    with torch._subclasses.FakeTensorMode(), private.without_modes():
        assert private.dispatch_modes() == 0 and type(torch.zeros(1)) is torch.Tensor


def test_wrapper_subclass():
    tensor = private.wrapper_subclass(Wrapper, (2, 3), strides=(3, 1), dtype=torch.half)
    assert type(tensor) is Wrapper and tensor.shape == (2, 3) and tensor.dtype is torch.half


RENAMED = {
    "single_level_function": "SingleLevelFunction",
    "inductor_config": "INDUCTOR_CONFIG",
    "nested_tensor": "NestedTensor",
}


def test_every_name_is_exercised():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    names = {name for name in vars(private) if not name.startswith("_")}
    imported = {"importlib", "torch", "forward_ad"}
    assert {RENAMED.get(name, name) for name in tested} >= names - imported


def test_private_attributes_of_tensors():
    tensor = torch.zeros(1)
    before = tensor._version
    tensor.add_(1)
    assert tensor._version == before + 1
    parameter = torch.zeros(1)
    parameter._is_param = True
    assert isinstance(parameter, torch.nn.Parameter)
