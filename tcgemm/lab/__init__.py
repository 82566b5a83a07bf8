"""The laboratory: instruments that reproduce published tables on a GPU of your own.

    probe     the throughput and the latency of each tensor-core instruction and of memory
    ladder    GEMM kernels from the first attempt on, one idea a step
    model     what bounds a tile: blocking, banks of shared memory, roofline
    results   what probe and ladder measured on the GPUs of the project

Nothing else in tcgemm imports it. `tcgemm probe`, `ladder` and `model` are its commands.
"""
