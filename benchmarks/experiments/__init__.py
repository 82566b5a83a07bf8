"""Experiments beside the sets of tcgemm.measure.cases: `python -m benchmarks run --set NAME`.

side_by_side.py   the job that measures several ways to do one step
stack.py          a model of Llama's shape, of plain torch modules
models.py         models, swap: training steps, decode and forward of this model
products.py       packed, low_bits: cases of products
errors.py, patterns.py  errors: f32 products beside float64
rates.py          rates: what a machine can do, and the noise of the timer
"""

from __future__ import annotations

import functools

from benchmarks.experiments import errors, models, products, rates
from tcgemm.measure.run import Experiments

EXPERIMENTS: Experiments = {
    **{name: functools.partial(models.jobs, name) for name in models.SETS},
    **{name: functools.partial(products.jobs, name) for name in products.SETS},
    "errors": errors.jobs,
    "rates": rates.jobs,
}
