"""Training steps and decode of Llama-like models: `python -m benchmarks run --set models`.

stack.py      the model, of plain torch modules
waiting.py    the time of calls that are waited for, in alternating slices
variants.py   what is measured beside torch: compiled, diverted or swapped models
cases.py      the models, and the tasks of each
training.py   a training step of one variant
decoding.py   a decode step of one variant
measure.py    one case -> a row for each variant
record.py     <gpu>.json: rows, merging
run.py        the command
"""
