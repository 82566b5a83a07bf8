"""The products as operators of torch: dispatch, derivatives, fakes, batching rules."""

from tcgemm.ops import autograd, fake, vmap  # noqa: F401  (they register with torch)
