"""`python -m tcgemm demo`: the main job on real input, without a network.

    1  handwritten digits (inside scikit-learn) -> two networks of the same seed, one of
       tcgemm.nn.Linear, one of torch.nn.Linear, trained side by side -> two accuracies
       -> the first with its weights in int8 and in fp8 (tcgemm.nn.QuantLinear) -> two more
    2  matrix products by dtype, layout and shape -> kernel, error, time, and torch's time on a GPU

The exit status is 0 only if all accuracies are above 95 % and within a point of each other and
every product of the table is within its error bound: the demo is also a check of the installation.
"""

import argparse
import contextlib
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import tcgemm
from tcgemm import info
from tcgemm.bench import accuracy, kernel_name, operands, rival, timing

HIDDEN = 256
BATCH = 128
LEARNING_RATE = 3e-3
LOWEST_ACCURACY = 95.0  # percent
LARGEST_DIFFERENCE = 1.0  # percentage points
QUANTISED = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}

# (layouts, m, n, k): on a GPU sizes that fill it, on the CPU what two cores do in milliseconds.
SHAPES = {
    "cuda": (
        (operands.LAYOUTS, 4096, 4096, 4096),
        (("TN",), 8192, 8192, 8192),
        (("TN", "NN"), 4095, 4095, 4095),
        (("TN",), 1000, 1000, 1000),
        (("TN",), 5000, 333, 777),
        (("TN",), 16, 4096, 4096),
    ),
    "cpu": (
        (operands.LAYOUTS, 512, 512, 512),
        (("TN", "NN"), 511, 511, 511),
        (("TN",), 500, 33, 777),
        (("TN",), 16, 1024, 1024),
    ),
}
# The shapes of the dtypes that have no table of their own.
FEW = {
    "cuda": (
        (operands.LAYOUTS, 4096, 4096, 4096),
        (("TN",), 4095, 4095, 4095),
        (("TN",), 16, 4096, 4096),
    ),
    "cpu": ((operands.LAYOUTS, 512, 512, 512), (("TN",), 500, 33, 777)),
}
DTYPES = {
    "cuda": {"f16": SHAPES, "bf16": SHAPES, "tf32": FEW, "e4m3": FEW, "s8": FEW, "f64": FEW},
    "cpu": {"f16": SHAPES, "bf16": SHAPES, "f32": SHAPES}
    | {"tf32": FEW, "e4m3": FEW, "s8": FEW, "f64": FEW},
}
ACCUMULATION = {"f64": "f64", "s8": "s32", "e4m3": "promoted"}  # f32 for all others
CHECK_BUDGET = {"cuda": 3e12, "cpu": 2e9}  # floating-point operations of one float64 reference
TIMED_MS = {"cuda": 100.0, "cpu": 30.0}  # a candidate; benchmarks/dense.py takes 400


def missing(device, dtype):
    """Why this GPU has no kernel for products of the torch dtype, or None."""
    a = torch.empty(16, 16, device=device).to(dtype)
    try:
        tcgemm.check_layout(a, a.t(), precision="high" if dtype is torch.float32 else None)
    except RuntimeError as error:
        return str(error)
    return None


class Digits(nn.Module):
    """64 pixels -> 256 -> 256 -> 10 classes; tcgemm's layers fuse the activation."""

    def __init__(self, fused):
        super().__init__()
        if fused:
            self.hidden1 = tcgemm.nn.Linear(64, HIDDEN, activation="relu")
            self.hidden2 = tcgemm.nn.Linear(HIDDEN, HIDDEN, activation="relu")
            self.output = tcgemm.nn.Linear(HIDDEN, 10)
        else:
            self.hidden1 = nn.Linear(64, HIDDEN)
            self.hidden2 = nn.Linear(HIDDEN, HIDDEN)
            self.output = nn.Linear(HIDDEN, 10)
        self.activation = nn.Identity() if fused else nn.ReLU()

    def forward(self, pixels):
        hidden = self.activation(self.hidden1(pixels))
        return self.output(self.activation(self.hidden2(hidden)))


def load_data(device):
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


def precision(device):
    """bf16 by autocast on a GPU, for both networks alike; float32 on the CPU."""
    if device == "cuda":
        return torch.autocast("cuda", torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def one_thread():
    """Layers of this size are done before a second thread has woken up, and waiting for it on a
    busy machine takes a hundred times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def progress(total):
    """A bar that appears if the work takes longer than three seconds."""
    try:
        from tqdm import tqdm
    except ImportError:
        print("  training (for a progress bar: pip install tqdm) ...", flush=True)
        return contextlib.nullcontext()
    return tqdm(total=total, desc="  training", unit="step", delay=3, leave=False)


def train(networks, data, epochs, seed, device):
    """Trains every network on the same batches in the same order; returns the accuracies in %."""
    train_x, train_y, test_x, test_y = data
    steps = math.ceil(len(train_x) / BATCH)
    trainers = []
    for network in networks:
        optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, LEARNING_RATE, total_steps=epochs * steps
        )
        trainers.append((network, optimizer, schedule))
    generator = torch.Generator().manual_seed(seed)
    with progress(epochs * steps) as bar:
        for _ in range(epochs):
            order = torch.randperm(len(train_x), generator=generator).to(device)
            for chosen in order.split(BATCH):
                for network, optimizer, schedule in trainers:
                    with precision(device):
                        scores = network(train_x[chosen])
                    loss = F.cross_entropy(scores.float(), train_y[chosen])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    schedule.step()
                if bar is not None:
                    bar.update()
    return [evaluate(network, test_x, test_y, device) for network in networks]


def evaluate(network, pixels, labels, device):
    with torch.no_grad(), precision(device):
        right = network(pixels).argmax(1) == labels
    return 100.0 * right.double().mean().item()


def quantised(network, pixels, labels, device):
    """The accuracies in % of the network with its weights in 8 bits, in the dtypes that the device
    multiplies; it is as before afterwards."""
    found = {}
    for name, dtype in QUANTISED.items():
        if missing(device, dtype):
            continue
        report = tcgemm.swap_linear(network, to=tcgemm.nn.QuantLinear, dtype=dtype)
        found[f"tcgemm.nn.QuantLinear, {name}"] = evaluate(network, pixels, labels, device)
        report.undo()
    return found


def judge(accuracies):
    """The sentence that says what is wrong with {name: accuracy in %}, or None."""
    for name, value in accuracies.items():
        if not value > LOWEST_ACCURACY:
            return (
                f"The network of {name} recognises {value:.2f} % of the test digits; "
                f"more than {LOWEST_ACCURACY:g} % was expected."
            )
    low, high = (choose(accuracies, key=accuracies.get) for choose in (min, max))
    difference = accuracies[high] - accuracies[low]
    if difference > LARGEST_DIFFERENCE:
        return (
            f"The networks of {low} and {high} differ by {difference:.2f} points "
            f"({accuracies[low]:.2f} % and {accuracies[high]:.2f} %); at most "
            f"{LARGEST_DIFFERENCE:g} was expected of the same training."
        )
    return None


def digits(device, epochs, seed):
    """Part 1: trains both networks and prints all accuracies; returns a complaint or None."""
    data = load_data(device)
    networks = []
    for fused in (True, False):
        torch.manual_seed(seed)
        networks.append(Digits(fused).to(device))
    how = "bf16 autocast" if device == "cuda" else "float32"
    print(
        f"Handwritten digits: {len(data[0])} to train on, {len(data[2])} to test, "
        f"{epochs} epochs, {how}, seed {seed}"
    )
    start = time.perf_counter()
    names = ("tcgemm.nn.Linear", "torch.nn.Linear")
    with one_thread():
        found = dict(zip(names, train(networks, data, epochs, seed, device), strict=True))
        seconds = time.perf_counter() - start
        found |= quantised(networks[0], *data[2:], device)
    for name, value in found.items():
        print(f"  {name:28}{value:6.2f} % of the test digits recognised")
    print(f"  Linear trained in {seconds:.1f} s, QuantLinear is the first with weights in 8 bits\n")
    return judge(found)


def products(device, seed):
    """Part 2: prints the table of products; returns a complaint or None."""
    last = "x torch" if device == "cuda" else ""
    print(
        "Matrix products of normal data. Error: the largest, over its float64 bound; the limit is"
    )
    print("1, which the rounding of a 16-bit result alone comes close to. The times are from short")
    print("measurements; benchmarks/dense.py takes longer ones.")
    print(f"  {'dtype':6}{'layout':7}{'m x n x k':20}{'kernel':45}{'error':>6}{'us':>10} {last:>8}")
    wrong = []
    for dtype, shapes in DTYPES[device].items():
        if missing(device, operands.DTYPES[dtype]):
            print(f"  {dtype:6} this GPU has no kernel for it")
            continue
        for layouts, *shape in shapes[device]:
            for layout in layouts:
                text, error = product(device, dtype, layout, shape, seed)
                print(text, flush=True)
                if not error <= 1.0:  # NaN is not
                    wrong.append(f"{dtype} {layout} {'x'.join(map(str, shape))} ({error:.3g})")
    if wrong:
        return "These products are outside their error bound: " + ", ".join(wrong) + "."
    return None


def product(device, dtype, layout, shape, seed):
    """-> (the table's line, the error over its bound) of one product."""
    generator = torch.Generator(device).manual_seed(seed)
    kind = operands.DTYPES[dtype]
    data = operands.Operands.build(layout, *shape, dtype=kind, device=device)
    data.normal(generator).poison()
    a, b = data.a[0], data.b[0]
    options = {"precision": "high"} if dtype == "tf32" else {}
    tcgemm.mm(a, b, out=data.out[0], **options)
    rounded = (accuracy.tf32(a), accuracy.tf32(b)) if dtype == "tf32" else (a, b)
    error = accuracy.error_ratio(
        *(data.out[0], *rounded),
        accumulation=ACCUMULATION.get(dtype, "f32"),
        dtype=dtype,
        budget=CHECK_BUDGET[device],
    )
    candidates = {"tcgemm": lambda i: tcgemm.mm(data.a[i], data.b[i], out=data.out[i], **options)}
    one = torch.ones((), device=device)
    ways = {"scales": (one, one), "tf32": dtype == "tf32"}

    def torch_product(i):
        rival.product(data.a[i], data.b[i], data.out[i], **ways)

    refused = device == "cuda" and rival.refusal(torch_product)
    if device == "cuda" and not refused:
        candidates["torch"] = torch_product
    timings = timing.measure(candidates, data.sets, device=device, min_ms=TIMED_MS[device])
    kernel = kernel_name(tcgemm.explain(a, b, **options)) if device == "cuda" else "cpu"
    us = timings["tcgemm"].us
    ratio = f"{timings['torch'].us / us:8.2f}" if "torch" in timings else ""
    ratio = f"{'refused':>8}" if refused else ratio
    size = " x ".join(map(str, shape))
    return f"  {dtype:6}{layout:7}{size:20}{kernel:45}{error:6.2f}{us:10.1f} {ratio}", error


def default_device():
    """The GPU where there is one and the library has kernels for it."""
    if not torch.cuda.is_available():
        return "cpu"
    if info.build()["cuda"] is None:
        print("There is a GPU, but this libtcgemm.so was built without CUDA: this is the CPU.")
        return "cpu"
    return "cuda"


def main(argv=None):
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
    where = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    print(f"tcgemm {tcgemm.__version__} on {where}, torch {torch.__version__}\n")
    complaints = [
        digits(device, options.epochs, options.seed),
        products(device, options.seed),
    ]
    complaints = [sentence for sentence in complaints if sentence]
    for sentence in complaints:
        print(f"\n{sentence}", file=sys.stderr)
    if not complaints:
        print("\nThe networks agree, and every product is within its error bound.")
    return 1 if complaints else 0
