"""The command `tcgemm`, also as `python -m tcgemm`: tcgemm/cli has its commands."""

import sys

from tcgemm import cli


def main() -> int:
    """Runs the command line. An error prints one sentence, and the exit status is 1."""
    try:
        return cli.main(sys.argv[1:])
    except RuntimeError as error:
        text = str(error)
        sys.exit(text if text.startswith("tcgemm") else f"tcgemm: {text}")


if __name__ == "__main__":
    sys.exit(main())
