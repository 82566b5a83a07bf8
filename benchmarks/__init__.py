"""Benchmarks of tcgemm against torch: `python -m benchmarks`, docs/dev/benchmarking.md."""
