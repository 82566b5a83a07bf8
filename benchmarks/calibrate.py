"""Is the timer to be trusted here, and what is the ceiling? Run it before the tables.

    python benchmarks/timing.py        on the GPU, else on the CPU

    noise     one and the same product as two rivals: what the ratio is off 1 is noise
    ceiling   a copy's bytes a second (read + written) and a large torch.mm's FLOP a second
    host      microseconds of one torch.mm call

The timer itself is tcgemm/bench/timing.py, which the demo uses as well.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # a checkout need not be installed to be measured

import torch  # noqa: E402

from tcgemm.bench import operands, telemetry  # noqa: E402
from tcgemm.bench import timing as timer  # noqa: E402

SIZES = {"cuda": (512, 2048, 8192), "cpu": (128, 512)}
COPY_BYTES = {"cuda": 4 << 30, "cpu": 64 << 20}
DTYPE = {"cuda": torch.bfloat16, "cpu": torch.float32}


def product(size, device):
    """Operands of size^3, and the call of torch.mm on set i."""
    data = operands.Operands.build("TN", size, size, size, dtype=DTYPE[device], device=device)
    data.normal()
    return data, lambda i: torch.mm(data.a[i], data.b[i], out=data.out[i])


def noise(size, device, ms, reader):
    """The line of one size: us, spread, and the ratio of the product to itself."""
    data, call = product(size, device)
    sampler = telemetry.Sampler(reader)
    twice = {"first": call, "second": call}
    found = timer.measure(twice, data.sets, device=device, min_ms=ms, sampler=sampler)
    first, second = found["first"], found["second"]
    rate = 2.0 * size**3 / first.us / 1e6
    clock = f", {sampler.clock_mhz:.0f} MHz, {sampler.power_w:.0f} W" if sampler.samples else ""
    return (
        f"torch.mm {size}^3: {first.us:.2f} us, {rate:.1f} TFLOP/s, spread "
        f"{100 * first.iqr_us / first.us:.1f} %, itself {second.us / first.us:.4f} x{clock}"
    )


def copy_rate(device, ms):
    """GB/s of a copy, bytes read and bytes written both counted."""
    source = torch.empty(COPY_BYTES[device] // 4, dtype=torch.float32, device=device).normal_()
    target = torch.empty_like(source)
    found = timer.measure({"copy": lambda i: target.copy_(source)}, 1, device=device, min_ms=ms)
    return 2 * COPY_BYTES[device] / found["copy"].us / 1e3


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--ms", type=float, default=400.0, help="of timing a candidate (400)")
    options = parser.parse_args(argv)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    reader = telemetry.open_reader(device)
    for size in SIZES[device]:
        print(noise(size, device, options.ms, reader), flush=True)
    print(f"copy: {copy_rate(device, options.ms):.0f} GB/s")
    data, call = product(64, device)
    host = timer.host_time({"torch.mm": call}, data.sets, device=device)["torch.mm"]
    print(f"host time of torch.mm 64^3: {host.us:.2f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
