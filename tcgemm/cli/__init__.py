"""The command line of tcgemm.

tcgemm                                    says what is installed and what runs here
tcgemm demo                               trains a small network and times products
tcgemm compare --shapes 4096x4096x4096    measures shapes of your own beside torch
tcgemm bench --set squares                measures sets of cases beside torch
tcgemm tune --shapes 16x4096x4096         measures which kernels are fastest on this GPU
tcgemm explain 4096 4096 4096 --layout NN shows the plan for one product; needs no GPU
tcgemm numerics all                       shows what tensor cores lose; needs no GPU
tcgemm model blocking --gpu T4            shows what bounds a tile, by a model
tcgemm probe mma --row f16                measures the instructions of this GPU
tcgemm ladder 004                         runs GEMM kernels, one idea a step
tcgemm notebooks FOLDER                   copies the notebooks into a folder

`tcgemm <command> --help` lists the options of a command.
"""

import importlib

from tcgemm import info
from tcgemm.measure import command_line
from tcgemm.version import __version__

# The module of a command has run(arguments), which returns the exit status. It is imported when the
# command is called: the demo needs packages that the other commands do not.
_HERE = ("demo", "bench", "compare", "tune", "explain", "numerics", "notebooks")
COMMANDS = {name: f"tcgemm.cli.{name}" for name in _HERE}
COMMANDS |= {name: f"tcgemm.lab.{name}.command" for name in ("model", "probe", "ladder")}


def main(arguments: list[str]) -> int:
    """Runs the command that the arguments name; without one, prints what is installed."""
    parser = command_line.parser("tcgemm", __doc__)
    parser.add_argument("--version", action="version", version=f"tcgemm {__version__}")
    parser.add_argument(
        "--support-table", action="store_true", help="print the table of docs/support.md"
    )
    parser.add_argument("command", nargs="?", choices=COMMANDS)
    if arguments and arguments[0] in COMMANDS:
        command = importlib.import_module(COMMANDS[arguments[0]])
        return command.run(arguments[1:])
    options = parser.parse_args(arguments)
    print(info.support_table() if options.support_table else info.report())
    return 0
