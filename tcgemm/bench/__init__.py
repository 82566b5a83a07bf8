"""Sets of cases, measured against torch: `python -m tcgemm bench`.

case.py           Case: operation, dtype, layout, size, epilogue
cases.py          the sets
workloads.py      a case made runnable: operands, calls, checks
training.py       the same for forward and backward of a layer
sparse_passes.py  the same for passes over a weight
run.py            check -> time -> row
results_file.py   <gpu>.json: rows, details, merging
"""
