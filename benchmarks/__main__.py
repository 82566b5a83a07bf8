"""python -m benchmarks COMMAND [options]; each command has --help.

run        measure sets of cases, models and machines
merge      put files of results, or of rows, into one
report     write tables and pictures of the results
rows       the time of every kernel on drawn problems
fit        the planner's estimates and choices beside these times
pictures   draw the pictures of the documentation
figures    write the measured figures of the guides
notebooks  execute the notebooks and keep their outputs
"""

import importlib
import sys

from tcgemm.measure.amx import avoid_forbidden_amx

COMMANDS = {
    "run": "benchmarks.run",
    "merge": "benchmarks.merge",
    "report": "benchmarks.report",
    "rows": "benchmarks.recording",
    "fit": "benchmarks.fit",
    "pictures": "benchmarks.report.pictures",
    "figures": "benchmarks.report.figures",
    "notebooks": "benchmarks.run_notebooks",
}


def main(arguments):
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    if sentence := avoid_forbidden_amx():
        print(sentence)
    return importlib.import_module(COMMANDS[arguments[0]]).main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
