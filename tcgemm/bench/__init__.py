"""Sets of cases, measured against torch: `python -m tcgemm bench`.

case.py           Case: operation, dtype, layout, size, epilogue
cases.py          the sets
work.py           a case made runnable: what the three kinds have in common
workloads.py      the GEMMs: operands, calls, checks
training.py       forward and backward of a layer
sparse_passes.py  passes over a weight
run.py            check -> time -> row
results_file.py   <gpu>.json: rows, details, merging
"""
