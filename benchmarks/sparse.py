"""Measures 2:4 sparse products, and what makes a weight sparse: benchmarks/dense.py --set sparse.

    python benchmarks/sparse.py --minutes 5                 the promised ratios, PASS or MISS
    python benchmarks/sparse.py --dtype bf16 --out shard    options are those of dense.py
    python benchmarks/dense.py --set sparse-mm              one set alone; smoke-sparse: on the CPU

Rivals, in turns with ours in one process:

    sparse-mm       cuSPARSELt by its best algorithm, our own dense kernel, torch's dense product;
    sparse-few      of tf32, which cuSPARSELt does not get from torch, torch's dense product
    sparse-passes   torch._cslt_compress, torch._sparse_semi_structured_tile
    sparse-host     linear with a weight of torch.sparse.to_sparse_semi_structured

The weight (N, K) is pruned by magnitude, and dense products multiply the same with its zeros. Rates
are those of the dense product.
"""

import sys

import dense

if __name__ == "__main__":
    sys.exit(dense.main(["--set", "sparse", *sys.argv[1:]]))
