"""tcgemm.compare: products of given shapes, or the linear layers of a model, beside torch's.

api.py       the function; compare(shapes)
request.py   what the arguments ask for, and the sentences where they ask for nothing
measure.py   cases -> rows
models.py    compare(model, example_input)
result.py    Comparison: text, HTML, pandas frame, picture, file; load
"""

from tcgemm.measure.compare.api import compare
from tcgemm.measure.compare.result import Comparison, load

__all__ = ["Comparison", "compare", "load"]
