"""Functions of torch that use a tensor's memory.

A SparseTensor24 has no memory of its own, and torch would read from a null address. So these
functions work with the tensors inside, or are refused.
"""

import torch

from tcgemm.ops._torch_private import no_torch_function
from tcgemm.sparse.tensor import SparseTensor24, replaces

_Tensor = torch.Tensor


@replaces(_Tensor.share_memory_)
def _share_memory(w):
    for tensor in w.tensors().values():
        tensor.share_memory_()
    return w


@replaces(_Tensor.is_shared)
def _is_shared(w):
    return all(tensor.is_shared() for tensor in w.tensors().values())


@replaces(_Tensor.data_ptr)
def _data_ptr(w):
    """The address of the values, by which libraries find tensors that share memory."""
    return w.values.data_ptr()


@replaces(_Tensor.data.__set__)  # pyright: ignore[reportAttributeAccessIssue]
def _set_data(w, other):
    """`w.data = other` also takes the tensors inside of `other`."""
    if not isinstance(other, SparseTensor24):
        raise RuntimeError(
            "tcgemm.SparseTensor24: data must be a SparseTensor24, but is a "
            f"{type(other).__name__}; pass tcgemm.compress24 of it, or call copy_()."
        )
    with no_torch_function():
        w.data = other
    vars(w).update(vars(other.detach()), fast_operands=None)


def _refused(name, mend):
    def refuse(*args, **kwargs):
        raise RuntimeError(
            f"tcgemm.SparseTensor24: {name} needs a dense tensor's memory, which a SparseTensor24 "
            f"does not have; {mend}."
        )

    return refuse


for _function, _mend in (
    (_Tensor.__dlpack__, "pass the tensor's to_dense(), or its values and metadata"),
    (_Tensor.__dlpack_device__, "pass the tensor's to_dense(), or its values and metadata"),
    (_Tensor.apply_, "call it with the tensor's values"),
    (_Tensor.map_, "call it with the tensor's values"),
    (_Tensor.map2_, "call it with the tensor's values"),
):
    replaces(_function)(_refused(_function.__name__, _mend))
