"""`python -m tcgemm demo`: the main job on real input, without a network.

    1  handwritten digits (inside scikit-learn) -> two networks of the same seed, one of
       tcgemm.nn.Linear, one of torch.nn.Linear, trained side by side -> two accuracies
       -> the first with its weights in int8 and in fp8 (tcgemm.nn.QuantLinear) -> two more
       -> the first in bf16 with its weights in int4 (tcgemm.nn.PackedLinear) -> one more
       -> the first with half of its weights, trained on (tcgemm.nn.SparseLinear24) -> and its bytes
    2  matrix products by dtype, layout and shape -> kernel, error, time, and torch's time on a GPU

The exit status is 0 only if all accuracies are above 95 % and within a point of each other (for the
sparse network when it has learnt on), and every product of the table is within its error bound. So
the demo is also a check of the installation.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import tcgemm
from tcgemm import _library, info
from tcgemm.measure import progress
from tcgemm.measure.amx import avoid_forbidden_amx
from tcgemm.measure.demo.products import products, why_no_kernel

HIDDEN = 256
BATCH = 128
LEARNING_RATE = 3e-3
LOWEST_ACCURACY = 95.0  # percent
LARGEST_DIFFERENCE = 1.0  # percentage points
SPARSE = "tcgemm.nn.SparseLinear24"
PACKED = "tcgemm.nn.PackedLinear, int4"
Data = Sequence[torch.Tensor]  # train pixels, train labels, test pixels, test labels
INT8, FP8, BF16 = torch.int8, torch.float8_e4m3fn, torch.bfloat16
INT4: dict[str, Any] = {"to": tcgemm.nn.PackedLinear, "format": "int4", "group_size": 32}
# Name -> (options of tcgemm.swap_linear, dtype and epilogue of the layers' products).
SWAPS: dict[str, tuple[dict[str, Any], torch.dtype, str]] = {
    "tcgemm.nn.QuantLinear, int8": ({"to": tcgemm.nn.QuantLinear, "dtype": INT8}, INT8, "none"),
    "tcgemm.nn.QuantLinear, fp8": ({"to": tcgemm.nn.QuantLinear, "dtype": FP8}, FP8, "none"),
    PACKED: (INT4, BF16, "packed-int4-128"),
}


class Digits(nn.Module):
    """64 pixels -> 256 -> 256 -> 10 classes; tcgemm's layers fuse the activation."""

    hidden1: nn.Linear
    hidden2: nn.Linear
    output: nn.Linear
    activation: nn.Module

    def __init__(self, fused: bool):
        super().__init__()
        linear: Any = tcgemm.nn.Linear if fused else nn.Linear
        options = {"activation": "relu"} if fused else {}
        self.hidden1 = linear(64, HIDDEN, **options)
        self.hidden2 = linear(HIDDEN, HIDDEN, **options)
        self.output = linear(HIDDEN, 10)
        self.activation = nn.Identity() if fused else nn.ReLU()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """The scores of the ten classes."""
        hidden = self.activation(self.hidden1(pixels))
        return self.output(self.activation(self.hidden2(hidden)))


def load_data(device: str) -> Data:
    """(train pixels, train labels, test pixels, test labels): 1347 and 450 digits of 8 x 8."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise SystemExit(
            "The demo's data ships inside scikit-learn, which is not installed: "
            'pip install scikit-learn, or pip install "tcgemm[demo]".'
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(pixels / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
    train_x, test_x = (torch.tensor(x, dtype=torch.float32, device=device) for x in parts[:2])
    train_y, test_y = (torch.tensor(y, device=device) for y in parts[2:])
    return train_x, train_y, test_x, test_y


def precision(device: str) -> AbstractContextManager[Any]:
    """bf16 by autocast on a GPU, for both networks alike; float32 on the CPU."""
    if device == "cuda":
        return torch.autocast("cuda", torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Layers of this size are done before a second thread has woken up, and waiting for it on a
    busy machine takes a hundred times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train(
    networks: Sequence[nn.Module], data: Data, epochs: int, seed: int, device: str
) -> list[float]:
    """Trains every network on the same batches in the same order; returns the accuracies in %."""
    train_x, train_y, _, _ = data
    steps = math.ceil(len(train_x) / BATCH)
    trainers = []
    for network in networks:
        optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, LEARNING_RATE, total_steps=epochs * steps
        )
        trainers.append((network, optimizer, schedule))
    generator = torch.Generator().manual_seed(seed)
    with progress.bar(epochs * steps, "training", "step") as bar:
        for _ in range(epochs):
            order = torch.randperm(len(train_x), generator=generator).to(device)
            for batch in order.split(BATCH):
                for network, optimizer, schedule in trainers:
                    with precision(device):
                        scores = network(train_x[batch])
                    loss = F.cross_entropy(scores.float(), train_y[batch])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    schedule.step()
                if bar is not None:
                    bar.update()
    return [evaluate(network, data, device) for network in networks]


def evaluate(network: nn.Module, data: Data, device: str) -> float:
    """The accuracy in %."""
    _, _, pixels, labels = data
    with torch.no_grad(), precision(device):
        hits = network(pixels).argmax(1) == labels
    return 100.0 * hits.double().mean().item()


def in_bf16(network: nn.Module, data: Data) -> tuple[nn.Module, Data]:
    """A copy of the network, and the data, in bf16."""
    parts = [part.bfloat16() if part.is_floating_point() else part for part in data]
    return copy.deepcopy(network).bfloat16(), parts


def swapped(network: nn.Module, data: Data, device: str) -> dict[str, float]:
    """The accuracies in % of copies of the network with other layers, where the device has kernels
    for them."""
    accuracies = {}
    for name, (options, dtype, epilogue) in SWAPS.items():
        if why_no_kernel(device, dtype, epilogue):
            continue
        model, inputs = copy.deepcopy(network), data
        if dtype is BF16:
            model, inputs = in_bf16(network, data)
        tcgemm.swap_linear(model, **options)
        accuracies[name] = evaluate(model, inputs, device)
    return accuracies


def state_bytes(network: nn.Module) -> int:
    """The size of the state_dict."""
    return sum(tensor.nbytes for tensor in network.state_dict().values())


def sparse(
    network: nn.Module, data: Data, epochs: int, seed: int, device: str
) -> tuple[dict[str, float], str]:
    """The network in bf16, half of every weight zero (2:4), then trained on, then compressed; the
    one that came is as it was.

    -> ({name: accuracy in %}, what there is to say); no accuracies where the GPU has no kernel.
    """
    if why_no_kernel(device, torch.bfloat16, "sparse"):
        return {}, "is left out: this GPU has no kernel for it"
    network, data = in_bf16(network, data)
    dense = state_bytes(network)
    tcgemm.swap_linear(network, to=tcgemm.nn.SparseLinear24, learns=True)
    accuracies = {f"{SPARSE}, pruned": evaluate(network, data, device)}
    (accuracies[f"{SPARSE}, trained on"],) = train([network], data, epochs, seed, device)
    for name, layer in list(network.named_children()):
        if isinstance(layer, tcgemm.nn.SparseLinear24):
            frozen = tcgemm.nn.SparseLinear24.from_linear(layer.to_linear())
            setattr(network, name, frozen)
    accuracies[f"{SPARSE}, compressed"] = evaluate(network, data, device)
    return accuracies, (
        f"is the first in bf16 with half of its weights zero, then {epochs} epochs more: "
        f"{dense} bytes dense, {state_bytes(network)} compressed"
    )


def judge(accuracies: Mapping[str, float]) -> str | None:
    """The sentence that says what is wrong with {name: accuracy in %}, or None."""
    for name, value in accuracies.items():
        if not value > LOWEST_ACCURACY:
            return (
                f"The network of {name} recognises {value:.2f} % of the test digits; "
                f"more than {LOWEST_ACCURACY:g} % was expected."
            )
    low, high = (choose(accuracies, key=accuracies.__getitem__) for choose in (min, max))
    difference = accuracies[high] - accuracies[low]
    if difference > LARGEST_DIFFERENCE:
        return (
            f"The networks of {low} and {high} differ by {difference:.2f} points "
            f"({accuracies[low]:.2f} % and {accuracies[high]:.2f} %); at most "
            f"{LARGEST_DIFFERENCE:g} was expected of the same training."
        )
    return None


def digits(device: str, epochs: int, seed: int) -> str | None:
    """Part 1: trains both networks and prints all accuracies; returns a complaint or None."""
    data = load_data(device)
    networks = []
    for fused in (True, False):
        torch.manual_seed(seed)
        networks.append(Digits(fused).to(device))
    dtype = "bf16 autocast" if device == "cuda" else "float32"
    print(
        f"Handwritten digits: {len(data[0])} to train on, {len(data[2])} to test, "
        f"{epochs} epochs, {dtype}, seed {seed}"
    )
    start = time.perf_counter()
    names = ("tcgemm.nn.Linear", "torch.nn.Linear")
    with one_thread():
        accuracies = dict(zip(names, train(networks, data, epochs, seed, device), strict=True))
        seconds = time.perf_counter() - start
        accuracies |= swapped(networks[0], data, device)
        sparse_accuracies, summary = sparse(networks[0], data, max(1, epochs // 2), seed, device)
    for name, value in (accuracies | sparse_accuracies).items():
        print(f"  {name:38}{value:6.2f} % of the test digits recognised")
    print(f"  Linear trained in {seconds:.1f} s; QuantLinear is the first with weights in 8 bits;")
    print("  PackedLinear is the first in bf16 with weights in 4 bits, beside inputs of 16;")
    print(f"  SparseLinear24 {summary}\n")
    groups = [{name: value for name, value in accuracies.items() if name != PACKED}]
    if PACKED in accuracies:  # 4 bits may cost more than a point
        groups.append({PACKED: accuracies[PACKED]})
    if sparse_accuracies:
        learnt = list(sparse_accuracies)[-1]
        groups.append({names[0]: accuracies[names[0]], learnt: sparse_accuracies[learnt]})
    return next(filter(None, map(judge, groups)), None)


def default_device() -> str:
    """The GPU where there is one and the library has kernels for it."""
    if not torch.cuda.is_available():
        return "cpu"
    if info.build()["cuda"] is None:
        print(f"There is a GPU, but {_library.no_cuda_kernel()}")
        return "cpu"
    return "cuda"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs both parts; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tcgemm demo",
        description="Trains a network on handwritten digits and times matrix products.",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), help="cuda where there is one")
    parser.add_argument("--epochs", type=int, default=20, help="of training (20)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    device = options.device or default_device()
    device_name = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    print(f"tcgemm {tcgemm.__version__} on {device_name}, torch {torch.__version__}")
    if sentence := avoid_forbidden_amx():
        print(sentence)
    print()
    complaints = [
        digits(device, options.epochs, options.seed),
        products(device),
    ]
    complaints = [sentence for sentence in complaints if sentence]
    for sentence in complaints:
        print(f"\n{sentence}", file=sys.stderr)
    if not complaints:
        print("\nThe networks agree, and every product is within its error bound.")
    return 1 if complaints else 0
