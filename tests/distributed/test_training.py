"""Every layer under every tool for several processes trains as in one process."""

import pytest
import torch

from support import processes
from support.processes import in_processes
from support.samples import pairs
from support.sharding import EIGHT_BITS, LAYERS, WRAPPERS, batch, losses_of, reference, wrapped

# torch's gradients of a part of the batch have other roundings. Where a GPU has other kernels for
# fewer rows, a value of 8 bits or of tf32, as sparse layers multiply, may round to its other side.
NEAR = {"cpu": 1e-5, "cuda": 1e-3}
NEAR_8_BITS = {"cpu": 1e-5, "cuda": 1e-2}


@pairs("kind, wrapper", LAYERS, WRAPPERS)
@in_processes
def test_the_same_batch_gives_the_bits_of_one_process(rank, kind, wrapper):
    x, target = batch()
    losses, results = losses_of(wrapped(kind, wrapper, rank if wrapper == "ddp" else 0), x, target)
    exact_losses, expected = losses_of(reference(kind, wrapper), x, target)
    assert losses[-1] < losses[0]
    if processes.device().type == "cpu":
        assert losses == exact_losses
        assert all(map(torch.equal, results, expected))
    else:  # a Parameter in gathered memory may have other kernels
        near = 1e-2 if wrapper == "fsdp2_mixed" or kind in EIGHT_BITS else 1e-3
        torch.testing.assert_close(losses, exact_losses, rtol=near, atol=near)
        torch.testing.assert_close(results, expected, rtol=near, atol=near)


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp1", "fsdp2"])
@pytest.mark.parametrize("kind", LAYERS)
@in_processes
def test_parts_of_a_batch_give_the_losses_of_one_process(rank, kind, wrapper):
    losses, _ = losses_of(wrapped(kind, wrapper), *batch(rank), steps=3)
    exact_losses, _ = losses_of(reference(kind, wrapper), *batch(), steps=3)
    mean = torch.tensor(losses, device=processes.device())
    torch.distributed.all_reduce(mean)
    near = (NEAR_8_BITS if kind in EIGHT_BITS else NEAR)[mean.device.type]
    if kind == "float8":
        near = 1e-2  # a part of the batch has a scale of its own
    expected = torch.tensor(exact_losses, device=mean.device)
    torch.testing.assert_close(mean / processes.WORLD_SIZE, expected, rtol=near, atol=0)
