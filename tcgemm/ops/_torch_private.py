"""Every private function of torch that tcgemm calls, under one name each.

A new torch may rename or drop any of them; tests/test_torch_private.py exercises each name here.
Private attributes of tensors stay where they are read: Tensor._version, which counts in-place
changes, and Tensor._is_param, which makes a subclass an nn.Parameter.
"""

# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false

import importlib

import torch
import torch._functorch.utils
import torch.nested._internal.nested_tensor  # newer ones import it at its first use
from torch.autograd import forward_ad

INDUCTOR_CONFIG = "torch._inductor.config"  # a module that takes two seconds to import

NestedTensor = torch.nested._internal.nested_tensor.NestedTensor  # of the layout torch.jagged
SingleLevelFunction = torch.autograd.function._SingleLevelFunction
any_autocast_enabled = torch._C._is_any_autocast_enabled
any_requires_grad = torch._C._any_requires_grad
at_start_of_cuda = torch.cuda._lazy_call  # calls a function once CUDA starts, or now if it has
below_autograd = torch._C._AutoDispatchBelowAutograd  # a context that skips the Autograd keys
below_dispatch_modes = torch._C._DisableTorchDispatch  # a context that skips __torch_dispatch__
below_transform = torch._C._functorch.get_unwrapped  # the tensor that a transform wraps
check = torch._check
dispatch_modes = torch._C._len_torch_dispatch_stack  # their number
enable_single_level_autograd_function = torch._functorch.utils.enable_single_level_autograd_function
foreach_copy = torch._foreach_copy_  # of lists of tensors, in one kernel
forward_gradients = forward_ad._set_fwd_grad_enabled
has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key  # of a key or its aliases
is_batched = torch._C._functorch.is_batchedtensor
is_gradient_batch = torch._C._functorch.is_legacy_batchedtensor  # a batch of is_grads_batched
is_profiled = torch.autograd._profiler_enabled
is_tracing = torch._C._is_tracing  # inside torch.jit.trace
is_wrapped_by_transform = torch._C._functorch.is_functorch_wrapped_tensor
is_wrapper = torch.utils._python_dispatch.is_traceable_wrapper_subclass  # a DTensor, for example
no_torch_function = torch._C.DisableTorchFunctionSubclass
results_are_plain = torch._C._disabled_torch_function_impl  # a __torch_function__ that adds no type
transforms_active = torch._C._are_functorch_transforms_active
tree_map_only = torch.utils._pytree.tree_map_only
unpack_dual = torch._VF._unpack_dual


def assume_constant_result(function):
    """torch.compiler.assume_constant_result, which imports torch._dynamo: that takes one second and
    100 MB."""
    function._dynamo_marked_constant = True
    return function


def register_sharding(op, rule, options):
    """torch.distributed.tensor.experimental.register_sharding, where the rule reads options.

    torch keeps the decision for the placements of the tensors, and for integers, alone: a call with
    another activation would get the plan of a call without. `options` are the keywords it reads;
    positional arguments behind the tensors always count.
    """
    experimental = importlib.import_module("torch.distributed.tensor.experimental")
    experimental.register_sharding(op)(rule)
    tensor = importlib.import_module("torch.distributed.tensor")  # still being imported
    propagator = tensor.DTensor._op_dispatcher.sharding_propagator
    arguments = op._schema.arguments
    names = {argument.name for argument in arguments}
    info = propagator.op_to_schema_info[op]
    info.static_kwargkey = sorted(names & set(options))
    plain = [i for i, argument in enumerate(arguments) if "Tensor" not in str(argument.type)]
    info.static_argnum = min([info.static_argnum, *plain])


def is_mutable(op):
    """Does an operator write into an argument?"""
    return op._schema.is_mutable


def is_exporting():
    """Does torch.export trace this call? torch.compiler.is_exporting() is true under torch.compile
    as well."""
    return torch.compiler._is_exporting_flag


def in_dual_level():
    """Is a forward-mode level of torch.autograd active?"""
    return forward_ad._current_level >= 0


def under_transform():
    """Can forward mode or a transform of torch.func see the next operation?"""
    return forward_ad._current_level >= 0 or transforms_active()


def redispatch(op):
    """The call of an operator's kernel for given dispatch keys: function(keys, *arguments)."""
    return op._handle.redispatch_boxed


def dispatch_keys(name):
    """The key set that holds the one dispatch key of this name."""
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))


def device_free_kernel(op):
    """The kernel of an operator for the devices that have none of their own."""
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    return lambda *arguments, **options: op._op_dk(key, *arguments, **options)


def size_hint(size):
    """The number that stands for a size while a call is traced; None if nothing says one."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


def ragged_dim(nested):
    """The dimension of a jagged NestedTensor whose size differs between its parts."""
    return nested._ragged_idx


def known_lengths(nested):
    """The smallest and the largest size along the ragged dimension of a jagged NestedTensor, each
    None unless it was computed before: on a GPU that waits."""
    return nested._maybe_min_seqlen, nested._maybe_max_seqlen


def runs_as_it_is(function):
    """A decorator: torch.compile leaves the function, and what it calls, to the interpreter where a
    compiled function reaches it by way of the dispatcher. torch.compiler.disable imports
    torch._dynamo, which takes one second."""
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    frames.set_code_exec_strategy(function.__code__, skip)
    return function


def mark_static_address(tensor):
    """Tells torch.compile that the tensor keeps its memory. torch._dynamo takes a second to import,
    so it is imported by the first call."""
    torch._dynamo.mark_static_address(tensor)


def destroy_library(library):
    """Takes the registrations of a torch.library.Library back."""
    library._destroy()


def graph_pass_class():
    """The base class of inductor's passes that have a key for its caches."""
    return importlib.import_module("torch._inductor.custom_graph_pass").CustomGraphPass


def inductor_decompositions():
    """The decompositions that inductor applies before its own passes: functions by operator."""
    return importlib.import_module("torch._inductor.decomposition").select_decomp_table()


def compiles_ahead_of_time():
    """Does inductor, inside a pass, compile for a process without Python?"""
    return importlib.import_module("torch._inductor.virtualized").V.aot_compilation


def without_modes():
    """A context without the dispatch modes that are active, such as the mode of fake tensors."""
    return torch.utils._python_dispatch._disable_current_modes()


def wrapper_subclass(cls, *arguments, **options):
    """A tensor without memory. Functions in C++ that ask for its address raise an error."""
    tensor = torch.Tensor._make_wrapper_subclass(cls, *arguments, **options)
    torch._C._set_throw_on_mutable_data_ptr(tensor)
    return tensor
