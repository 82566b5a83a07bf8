"""The command line: what is installed, the demo, the benchmarks, and the plan of one product.

python -m tcgemm                                    what is installed and what runs here
python -m tcgemm demo                               the main job on real input
python -m tcgemm bench --set squares                python -m benchmarks run, in a checkout
python -m tcgemm explain 4096 4096 4096 --layout NN the plan for one product, no GPU needed
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch

import tcgemm
from tcgemm import dtypes, info


def demo(arguments: list[str]) -> int:
    from tcgemm import demo

    return demo.main(arguments)


def bench(arguments: list[str]) -> int:
    """Runs benchmarks/ of the checkout. The wheel lacks it: its results belong to a commit."""
    checkout = Path(tcgemm.__file__).resolve().parent.parent
    if not (checkout / "benchmarks" / "__main__.py").is_file():
        print(f"The benchmarks are part of the source checkout; {checkout} has no benchmarks/.")
        return 1
    folders = [str(checkout), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    command = [sys.executable, "-m", "benchmarks", "run", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


def operands(arguments: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """a (M, K) and b (K, N) on the meta device, in the memory order that the layout names."""
    types = {row.name: row.torch for row in dtypes.TABLE}
    batch = (arguments.batch,) if arguments.batch > 1 else ()
    common = {"dtype": types[arguments.dtype], "device": "meta"}

    def operand(rows: int, columns: int, transposed: bool) -> torch.Tensor:
        if transposed:
            return torch.empty(*batch, columns, rows, **common).mT
        return torch.empty(*batch, rows, columns, **common)

    m, n, k = arguments.m, arguments.n, arguments.k
    layout = arguments.layout
    return operand(m, k, layout in ("TT", "NT")), operand(k, n, layout in ("TN", "TT"))


def explain(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tcgemm explain", description=explain.__doc__)
    for size in "mnk":
        parser.add_argument(size, type=int)
    parser.add_argument("--dtype", default="bf16", choices=[row.name for row in dtypes.TABLE])
    parser.add_argument("--layout", default="TN", choices=["TN", "NN", "TT", "NT"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", help="f32: highest, high, medium; float8: promoted, fast")
    parser.add_argument("--device", help="a GPU by name, such as H200 or A100; default H200")
    parser.add_argument("--kernel", help="only kernels whose name contains this")
    options = parser.parse_args(arguments)
    a, b = operands(options)
    for question in (tcgemm.explain, tcgemm.check_layout):
        chosen = {"precision": options.precision, "kernel": options.kernel}
        print(question(a, b, device=options.device, **chosen))
    return 0


def main(arguments: list[str]) -> int:
    commands = {"demo": demo, "bench": bench, "explain": explain}
    parser = argparse.ArgumentParser(
        prog="python -m tcgemm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--support-table", action="store_true", help="print the README's table")
    parser.add_argument("command", nargs="?", choices=commands)
    if arguments and arguments[0] in commands:
        return commands[arguments[0]](arguments[1:])
    options = parser.parse_args(arguments)
    print(info.support_table() if options.support_table else info.report())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RuntimeError as error:
        sys.exit(f"tcgemm: {error}")
