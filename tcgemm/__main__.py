"""The command `tcgemm`, also as `python -m tcgemm`: tcgemm/cli has its commands."""

import codecs
import io
import os
import sys

from tcgemm import cli

INTERRUPTED, BROKEN_PIPE = 128 + 2, 128 + 13  # the exit status of a shell after these signals
SPELLED = {"±": "+-"}


def spelled(error: UnicodeError) -> tuple[str, int]:
    """Characters that the encoding of a stream lacks, in ASCII: for codecs.register_error."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    parts = (SPELLED.get(c, c.encode("ascii", "backslashreplace").decode()) for c in text)
    return "".join(parts), error.end


def main() -> int:
    """Runs the command line. An error prints one sentence, and the exit status is 1.

    After Ctrl-C it is 130, once what was measured is printed. It is 141 if the reader of the output
    has ended, as in `tcgemm | head -1`.
    """
    codecs.register_error("tcgemm.spelled", spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="tcgemm.spelled")
    try:
        try:
            return cli.main(sys.argv[1:])
        finally:  # here, because a failure at the end of the process cannot be caught
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("tcgemm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except RuntimeError as error:
        text = str(error)
        sys.exit(text if text.startswith("tcgemm") else f"tcgemm: {text}")


def _drop_output() -> None:
    """What Python still writes when the process ends goes nowhere, and fails no more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
