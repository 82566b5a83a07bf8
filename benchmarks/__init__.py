"""Results, targets and reports of tcgemm's benchmarks: `python -m benchmarks`.

tcgemm/measure measures; docs/dev/benchmarking.md describes both.
"""

from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"  # <gpu>.json, tables and pictures
