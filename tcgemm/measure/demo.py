"""`tcgemm demo`: the main job on real input, without a network.

    1  handwritten digits (inside scikit-learn) -> a network of torch.nn.Linear, and a copy with
       tcgemm.nn.Linear, trained alike -> two accuracies
       -> the second with its layers swapped for those of SWAPS -> one more for each
    2  products by dtype, layout and shape (tcgemm.compare) -> kernel, error, time, and torch's time
       on a GPU

The exit status is 0 only if all accuracies are above 95 % and within a point of each other (4 bits
may cost more), and every product of the table is within its error bound. So the demo is also a
check of the installation.
"""

from __future__ import annotations

import contextlib
import copy
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import tcgemm
from tcgemm import _library, info
from tcgemm.measure import command_line
from tcgemm.measure.amx import avoid_forbidden_amx
from tcgemm.measure.compare.result import Comparison, size
from tcgemm.measure.operands import DTYPES
from tcgemm.measure.results import is_wrong

HIDDEN, BATCH, LEARNING_RATE = 256, 128, 3e-3
LOWEST_ACCURACY = 95.0  # percent
LARGEST_DIFFERENCE = 1.0  # percentage points
Data = Sequence[torch.Tensor]  # train pixels, test pixels, train labels, test labels
SPARSE = {"sparse": True}
INT4 = {"weight": "int4"}
# Name of the layers -> (arguments of tcgemm.swap_linear, dtype and kind of their products).
LAYERS = tcgemm.nn
SWAPS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "QuantLinear, int8": ({"to": LAYERS.QuantLinear, "dtype": "int8"}, "s8", {}),
    "QuantLinear, fp8": ({"to": LAYERS.QuantLinear, "dtype": "float8_e4m3fn"}, "e4m3", {}),
    "PackedLinear, int4": ({"to": LAYERS.PackedLinear, "group_size": 32}, "bf16", INT4),
    "SparseLinear24, trained on": ({"to": LAYERS.SparseLinear24, "learns": True}, "bf16", SPARSE),
}
# (m, n, k): on a GPU sizes that fill it, on the CPU what two cores do in milliseconds.
SHAPES = {
    "cuda": ((4096, 4096, 4096), (4095, 4095, 4095), (5000, 333, 777), (16, 28672, 4096)),
    "cpu": ((512, 512, 512), (511, 511, 511), (500, 33, 777), (16, 1024, 1024)),
}
# The products of the table: their dtype, and the arguments of tcgemm.compare.
PRODUCTS: tuple[tuple[str, dict[str, Any]], ...] = (
    *((dtype, {}) for dtype in ("bf16", "f16", "f32", "tf32", "f64", "e4m3", "s8")),
    ("bf16", {"layouts": ("NN", "TT", "NT")}),
    ("bf16", SPARSE),
    ("s8", SPARSE),
    ("bf16", INT4),
)
SECONDS = 0.04  # of a candidate; a benchmark takes 0.4


def load_data(device: str) -> Data:
    """1347 digits of 8 x 8 to train on, and 450 to test."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise SystemExit(
            "The demo's data ships inside scikit-learn, which is not installed: "
            'pip install scikit-learn, or pip install "tcgemm[demo]".'
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    pixels = (pixels / 16).astype("float32")
    parts = train_test_split(pixels, labels, test_size=0.25, random_state=0, stratify=labels)
    return [torch.tensor(part, device=device) for part in parts]


def precision(data: Data) -> contextlib.AbstractContextManager[Any]:
    """bf16 by autocast on a GPU, for both networks alike; float32 on the CPU."""
    return torch.autocast("cuda", torch.bfloat16, enabled=data[0].is_cuda)


def train(model: nn.Module, data: Data, epochs: int, seed: int) -> None:
    """Trains a network. The seed gives the order of the digits."""
    pixels, _, labels, _ = data
    steps = epochs * math.ceil(len(pixels) / BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(len(pixels), generator=generator, device="cpu").to(pixels.device)
        for batch in order.split(BATCH):
            with precision(data):
                scores = model(pixels[batch])
            optimizer.zero_grad()
            F.cross_entropy(scores.float(), labels[batch]).backward()
            optimizer.step()
            schedule.step()


def accuracy(model: nn.Module, data: Data) -> float:
    """The accuracy in % on the digits to test."""
    _, pixels, _, labels = data
    with torch.no_grad(), precision(data):
        hits = model(pixels).argmax(1) == labels
    return 100.0 * hits.double().mean().item()


def lacks_kernel(device: str, dtype: str, kind: Mapping[str, Any]) -> bool:
    """Has this GPU no kernel for such products? kind: SPARSE, INT4, or other arguments."""
    a = torch.zeros(64, 128, device=device).to(DTYPES[dtype])
    try:
        b: Any = a
        if kind is INT4:
            b = tcgemm.pack_weight(a, "int4")
        elif kind is SPARSE:
            b = tcgemm.compress24(a, prune=True)
        tcgemm.check_layout(a, b.t(), precision="high" if dtype == "tf32" else None)
    except RuntimeError:
        return True
    return False


def judge(accuracies: Mapping[str, float]) -> str | None:
    """The sentence that says what is wrong with {name: accuracy in %}, or None."""
    for name, value in accuracies.items():
        if not value > LOWEST_ACCURACY:
            return (
                f"The network of {name} recognises {value:.2f} % of the test digits; "
                f"more than {LOWEST_ACCURACY:g} % was expected."
            )
    names = [name for name in accuracies if "int4" not in name]  # 4 bits may cost more than a point
    low, high = (choose(names, key=accuracies.__getitem__) for choose in (min, max))
    difference = accuracies[high] - accuracies[low]
    if difference > LARGEST_DIFFERENCE:
        return (
            f"The networks of {low} and {high} differ by {difference:.2f} points "
            f"({accuracies[low]:.2f} % and {accuracies[high]:.2f} %); at most "
            f"{LARGEST_DIFFERENCE:g} was expected of the same training."
        )
    return None


def digits(device: str, epochs: int, seed: int) -> str | None:
    """Part 1: trains the networks and prints their accuracies; returns a complaint or None."""
    data = load_data(device)
    print(
        f"Handwritten digits: {len(data[0])} to train on, {len(data[1])} to test, {epochs} epochs, "
        f"{'bf16 autocast' if device == 'cuda' else 'float32'}, seed {seed}"
    )
    accuracies = {}

    def report(name: str, model: nn.Module, data: Data) -> None:
        accuracies[name] = accuracy(model, data)
        print(f"  {name:34}{accuracies[name]:6.2f} % of the test digits recognised")

    torch.manual_seed(seed)
    sizes = ((64, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 10))
    first, second, last = (nn.Linear(*size, device="cpu") for size in sizes)
    baseline = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).to(device)
    network = copy.deepcopy(baseline)
    tcgemm.swap_linear(network)
    for name, model in (("torch.nn.Linear", baseline), ("tcgemm.nn.Linear", network)):
        train(model, data, epochs, seed)
        report(name, model, data)
    for name, (options, dtype, kind) in SWAPS.items():
        if lacks_kernel(device, dtype, kind):
            print(f"  {name}: this GPU has no kernel for it")
            continue
        swapped, inputs = copy.deepcopy(network), data
        if dtype == "bf16":
            swapped = swapped.bfloat16()
            inputs = [part.bfloat16() if part.is_floating_point() else part for part in data]
        tcgemm.swap_linear(swapped, **options)
        if "learns" in options:
            train(swapped, inputs, max(1, epochs // 2), seed)
        report(name, swapped, inputs)
    print()
    return judge(accuracies)


def products(device: str) -> str | None:
    """Part 2: prints the table of products; returns a complaint or None."""
    print("Matrix products of normal data. Error: the largest, over its float64 bound. Above 1 it")
    print("is wrong, and the rounding of a 16-bit result alone comes close to 1. The times are")
    print("from short measurements; tcgemm bench takes longer ones.")
    table = Comparison([])
    against = ["torch"] if device == "cuda" else []
    for dtype, kind in PRODUCTS:
        if lacks_kernel(device, dtype, kind):
            print(f"{' '.join([dtype, *kind])}: this GPU has no kernel for it")
            continue
        shapes = SHAPES[device][:: 3 if kind else 1]  # of plain products all, else two
        options: Any = {"dtypes": dtype, "against": against, "seconds": SECONDS, "progress": False}
        result = tcgemm.compare(shapes, device=device, **options, **kind)
        table = Comparison(table.rows + result.rows, result.facts)
    print(table)
    faults = [
        f"{row['dtype']} {row['layout']} {size(row)} ({row['max_error_ratio']})"
        for row in table.rows
        if row["us"] is None or is_wrong(row)
    ]
    return f"These products are outside their error bound: {', '.join(faults)}." if faults else None


def default_device() -> str:
    """The GPU where there is one and the library has kernels for it."""
    if torch.cuda.is_available() and info.build()["cuda"] is None:
        print(f"There is a GPU, but {_library.no_cuda_kernel()}")
        return "cpu"
    return command_line.default_device()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs both parts; returns the exit status."""
    parser = command_line.parser("tcgemm demo", __doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="cuda where there is one")
    parser.add_argument("--epochs", type=int, default=20, help="of training (20)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    device = options.device or default_device()
    device_name = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    print(f"tcgemm {tcgemm.__version__} on {device_name}, torch {torch.__version__}")
    if sentence := avoid_forbidden_amx():
        print(sentence)
    threads = torch.get_num_threads()
    # Layers of this size are done before a second thread has woken up, and waiting for it on a
    # busy machine takes a hundred times as long.
    torch.set_num_threads(1)
    complaint = digits(device, options.epochs, options.seed)
    torch.set_num_threads(threads)
    complaints = [sentence for sentence in (complaint, products(device)) if sentence]
    for sentence in complaints:
        print(f"\n{sentence}", file=sys.stderr)
    if not complaints:
        print("\nThe networks agree, and every product is within its error bound.")
    return 1 if complaints else 0
