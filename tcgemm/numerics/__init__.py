"""What the arithmetic of tensor cores does to a result.

error_report(a, b, ...)   what the sums of a product lose, beside the alternatives of its dtype

`tcgemm numerics` prints the experiments of this package: published tables beside the
emulated tensor cores of an A100 and an H200.
"""

from tcgemm.numerics.measure import error_report
from tcgemm.numerics.report import ErrorReport, Way

__all__ = ["ErrorReport", "Way", "error_report"]
