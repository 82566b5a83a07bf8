"""The runnable form of a case."""

from __future__ import annotations

import torch

from tcgemm.measure import subbyte
from tcgemm.measure.case import PASSES, Case
from tcgemm.measure.packed_weight import PackedWeightWorkload
from tcgemm.measure.sparse_passes import Pass
from tcgemm.measure.subbyte import SubbyteWork
from tcgemm.measure.training import Training
from tcgemm.measure.work import Work
from tcgemm.measure.workloads import Workload


def work_of(case: Case, device: torch.device | str) -> Work:
    """The operands and calls of a case on a device; "meta" is enough for a plan."""
    if case.op in PASSES:
        return Pass(case, device)
    if case.op == "train":
        return Training(case, device)
    if case.dtype in subbyte.NAMES:
        return SubbyteWork(case, device)
    return (PackedWeightWorkload if case.packed_format else Workload)(case, device)
