"""The noise of the timer and the ceilings of this machine. Run it before the tables.

    python -m benchmarks calibrate     on the GPU, else on the CPU

    noise     one GEMM as two candidates: the deviation of their ratio from 1 is noise
    ceiling   the bytes per second of a copy (read and written), the FLOPS of a large torch.mm
    host      microseconds of one torch.mm call

The timer itself is tcgemm/measure/timing.py.
"""

import torch

from tcgemm.measure import command_line, operands, telemetry, timing

SIZES = {"cuda": (512, 2048, 8192), "cpu": (128, 512)}
COPY_BYTES = {"cuda": 4 << 30, "cpu": 64 << 20}
DTYPE = {"cuda": torch.bfloat16, "cpu": torch.float32}


def gemm(size, device):
    """Operands of size^3, and the call of torch.mm on set i."""
    data = operands.Operands.build("TN", size, size, size, dtype=DTYPE[device], device=device)
    data.normal()
    return data, lambda i: torch.mm(data.a[i], data.b[i], out=data.out[i])


def noise(size, device, ms, reader):
    """The line of one size: us, spread, and the ratio of the GEMM to itself."""
    data, call = gemm(size, device)
    sampler = telemetry.Sampler(reader)
    twice = {"first": call, "second": call}
    timings = timing.measure(twice, data.sets, device=device, min_ms=ms, sampler=sampler)
    first, second = timings["first"], timings["second"]
    rate = 2.0 * size**3 / first.us / 1e6
    clock = f", {sampler.clock_mhz:.0f} MHz, {sampler.power_w:.0f} W" if sampler.samples else ""
    return (
        f"torch.mm {size}^3: {first.us:.2f} us, {rate:.1f} TFLOPS, spread "
        f"{100 * first.iqr_us / first.us:.1f} %, itself {second.us / first.us:.4f} x{clock}"
    )


def copy_rate(device, ms):
    """GB/s of a copy, bytes read and bytes written both counted."""
    source = torch.empty(COPY_BYTES[device] // 4, dtype=torch.float32, device=device).normal_()
    target = torch.empty_like(source)
    timings = timing.measure({"copy": lambda i: target.copy_(source)}, 1, device=device, min_ms=ms)
    return 2 * COPY_BYTES[device] / timings["copy"].us / 1e3


def main(argv=None):
    parser = command_line.parser("benchmarks calibrate", __doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--ms", type=float, default=400.0, help="time per candidate (400)")
    options = parser.parse_args(argv)
    device = options.device or command_line.default_device()
    reader = telemetry.open_reader(device)
    for size in SIZES[device]:
        print(noise(size, device, options.ms, reader), flush=True)
    print(f"copy: {copy_rate(device, options.ms):.0f} GB/s")
    data, call = gemm(64, device)
    host = timing.host_time({"torch.mm": call}, data.sets, device=device)["torch.mm"]
    print(f"host time of torch.mm 64^3: {host.us:.2f} us")
    return 0
