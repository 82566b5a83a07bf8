"""The rates of this machine's GPU that csrc/core/device.h needs: GEMMs, memory, L2, clocks.

    python -m benchmarks rates results.json

Every rate is the median over two seconds of one load. The SM clock and the power are medians of
samples taken meanwhile. docs/dev/devices.md says how the numbers enter the planner's table.
"""

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tcgemm
from tcgemm.measure.telemetry import Sampler, open_reader
from tcgemm.measure.timing import measure

DEVICE = torch.device("cuda", 0)
MILLISECONDS = 2000.0
GEMM_SIZES = (1024, 2048, 4096, 8192)
F64_SIZE = 4096
MEMORY_BYTES = 4 << 30  # far more than L2 holds
L2_BYTES = (4 << 20, 8 << 20, 12 << 20, 16 << 20)  # source and copy both fit into L2
SMI_FIELDS = ("driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit")


def nvidia_smi(fields: tuple[str, ...]) -> dict[str, str]:
    """What nvidia-smi reports of the GPU, as text."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}"]
    command.append("--format=csv,noheader,nounits")
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(zip(fields, (value.strip() for value in answer.split(",")), strict=True))


def time_calls(call: Callable[[], Any]) -> dict[str, float | None]:
    """Microseconds a call, and the SM clock and power meanwhile."""
    sampler = Sampler(open_reader(DEVICE))
    timing = measure(
        {"call": lambda _: call()}, 1, device=DEVICE, min_ms=MILLISECONDS, sampler=sampler
    )["call"]
    return {"us": timing.us, "clock_mhz": sampler.clock_mhz, "power_w": sampler.power_w}


def gemm_rate(
    dtype: torch.dtype, size: int, mm: Callable[..., torch.Tensor]
) -> dict[str, float | None]:
    """A TN GEMM of `size`^3 on normal data."""
    a, b = (torch.randn(size, size, device=DEVICE).to(dtype) for _ in range(2))
    time = time_calls(lambda: mm(a, b.t()))
    return {**time, "tflops": 2 * size**3 / time["us"] / 1e6}


def copy_rate(size: int) -> dict[str, float | None]:
    """A copy of this many bytes; bytes read and written count."""
    source = torch.randn(size // 4, device=DEVICE)
    target = torch.empty_like(source)
    time = time_calls(lambda: target.copy_(source))
    return {**time, "gb_per_s": 2 * size / time["us"] / 1e3}


def read_rate(size: int) -> dict[str, float | None]:
    """A sum over this many bytes, which writes next to nothing."""
    source = torch.randn(size // 4, device=DEVICE)
    time = time_calls(source.sum)
    return {**time, "gb_per_s": size / time["us"] / 1e3}


def device_rates() -> dict[str, Any]:
    """Properties and rates of the GPU."""
    facts = torch.cuda.get_device_properties(DEVICE)
    bf16, f64 = torch.bfloat16, torch.float64
    rates = {f"bf16 {size} tcgemm": gemm_rate(bf16, size, tcgemm.mm) for size in GEMM_SIZES}
    rates |= {f"bf16 {size} torch": gemm_rate(bf16, size, torch.mm) for size in GEMM_SIZES[2:]}
    rates[f"f64 {F64_SIZE} torch"] = gemm_rate(f64, F64_SIZE, torch.mm)
    rates[f"f64 {F64_SIZE} tcgemm"] = gemm_rate(f64, F64_SIZE, tcgemm.mm)
    rates["copy 4 GiB"] = copy_rate(MEMORY_BYTES)
    rates["read 4 GiB"] = read_rate(MEMORY_BYTES)
    rates |= {f"L2 copy {size >> 20} MiB": copy_rate(size) for size in L2_BYTES}
    element = torch.zeros(1, device=DEVICE)
    rates["launch"] = time_calls(lambda: element.add_(1))
    return {
        "name": facts.name,
        "compute_capability": 10 * facts.major + facts.minor,
        "multiprocessors": facts.multi_processor_count,
        "l2_bytes": facts.L2_cache_size,
        "shared_bytes": facts.shared_memory_per_block_optin,
        "torch": torch.__version__,
        "nvidia-smi": nvidia_smi(SMI_FIELDS),
        "rates": rates,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks rates", description=__doc__.splitlines()[0]
    )
    parser.add_argument("results", type=Path, help="the JSON file to write")
    options = parser.parse_args(arguments)
    result = device_rates()
    options.results.write_text(json.dumps(result, indent=1) + "\n")
    for name, rate in result["rates"].items():
        print(f"{name:20}", *(f"{key} {value:.6g}" for key, value in rate.items() if value))
    return 0
