"""tcgemm.tune: measures which kernels are fastest on this GPU, and keeps the choices in a file.

api.py      the function; shapes, or the linear layers of a model -> the products to measure
measure.py  the kernels that compute a product: their estimates, checks and times; the choice
result.py   Tuning: the table

tcgemm/ops/tuned.py has the file, and gives the choices to the planner.
"""

from tcgemm.measure.tune.api import tune
from tcgemm.measure.tune.result import Tuning, stored
from tcgemm.ops.tuned import clear, folder

__all__ = ["Tuning", "clear", "folder", "stored", "tune"]
