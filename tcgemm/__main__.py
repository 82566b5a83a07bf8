"""python -m tcgemm: tcgemm/cli has the commands."""

import sys

from tcgemm import cli

if __name__ == "__main__":
    try:
        sys.exit(cli.main(sys.argv[1:]))
    except RuntimeError as error:
        sys.exit(f"tcgemm: {error}")
