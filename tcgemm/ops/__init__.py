"""The products as operators of torch: dispatch, derivatives, fakes, batching rules."""

from tcgemm.ops import autograd, dtensor, fake, negative, vmap  # noqa: F401  (they register)
