"""The effect of swap_linear on the speed and the memory of a model: `python -m benchmarks swap`."""
