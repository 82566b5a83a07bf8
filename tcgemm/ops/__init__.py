"""The products as operators of torch: dispatch, derivatives, fakes, batching rules."""

from tcgemm.ops import autograd, dtensor, fake, functional, negative, vmap  # noqa: F401  (they register)
