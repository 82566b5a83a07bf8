"""Sets of cases, measured against torch: `python -m tcgemm bench`.

case.py           Case: operation, dtype, layout, size, epilogue
cases.py          the sets
drawn.py          sets of cases that a seed draws
work.py           a case made runnable: the base class of the next three
workloads.py      the GEMMs: operands, calls, checks
training.py       forward and backward of a layer
sparse_passes.py  passes over a weight
run.py            check -> time -> row
protocol.py       how often and how long a case is measured; medians and ranges
results_file.py   <gpu>.json: rows, details, merging
"""
