"""How often tcgemm.nn.Linear prepares a float32 weight of eval mode, under each tool.

On the CPU a layer is made to believe that its weight is on a GPU; tcgemm.prepare makes no terms
there, but it is called.
"""

import pytest
import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import tcgemm.nn.linear as module

from support import processes
from support.processes import in_cpu_processes, in_processes
from support.sharding import WRAPPERS, batch, losses_of, model_of, reference, reshard, wrapped

FORWARDS = 4
prepare = module.prepared_in


class Calls:
    """Counts the weights that are prepared while it is entered."""

    def __enter__(self):
        self.count = 0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(module, "_on_gpu", lambda weight: True)
        self.patch.setattr(module, "prepared_in", self._prepare)
        return self

    def _prepare(self, form, weight, *, copies):
        self.count += 1
        return prepare(form, weight, copies=copies)

    def __exit__(self, *_):
        self.patch.undo()


def calls_of_eval_mode(rank, wrapper):
    x, target = batch()
    model, alone = wrapped("linear", wrapper), reference("linear", "ddp")
    counts = []
    for _ in range(2):  # before and after two steps
        for item in (model, alone):
            item.train()  # drops what losses_of has prepared on a GPU
        with Calls() as calls, torch.no_grad():
            results = [model.eval()(x) for _ in range(FORWARDS)]
            expected = alone.eval()(x)
        counts.append(calls.count)
        for item in results:
            assert torch.equal(item, results[0])
        if "mixed" not in wrapper:
            torch.testing.assert_close(results[0], expected, rtol=1e-5, atol=1e-5)
        if wrapper == "fsdp2_kept":  # before the optimizer takes the Parameters
            reshard(model)
        losses_of(model, x, target, steps=2)
        losses_of(alone, x, target, steps=2)
    return counts


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_sharded_weight_is_not_prepared_again_and_again(wrapper, device):
    # The layer in one process makes one of the calls.
    expected = [2, 2] if wrapper == "ddp" else [1, 1]
    assert processes.run(calls_of_eval_mode, wrapper, device=device) == [expected] * 2


@in_processes
def test_a_weight_of_tensor_parallelism_is_not_prepared(rank):
    """Each process has a part of the weight, as a DTensor."""
    x, _ = batch()
    model, expected = model_of("linear"), model_of("linear").eval()(x)
    gathered = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(model, processes.mesh(), {"2": gathered})
    with Calls() as calls, torch.no_grad():
        for _ in range(FORWARDS):
            torch.testing.assert_close(model.eval()(x), expected)
    assert calls.count == 0


@in_cpu_processes
def test_a_weight_that_is_gathered_between_calls(rank):
    """In summon_full_params the weight is a Parameter, a view of the gathered one."""
    x, _ = batch()
    model = WRAPPERS["fsdp1_orig"](model_of("linear")).eval()
    expected = model(x)
    with Calls() as calls, torch.no_grad():
        for _ in range(FORWARDS):
            with FullyShardedDataParallel.summon_full_params(model):
                weight = model.module[2].weight
                assert type(weight) is torch.nn.Parameter and weight.shape == (32, 48)
            assert torch.equal(model(x), expected)
    assert calls.count == 0
