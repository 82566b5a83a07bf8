"""What the results of a GPU say on the whole, for the pages: conditions, losses, targets, cliffs.

Stale rows count nowhere here.
"""

from benchmarks import current, targets
from benchmarks.report.overview import ratio
from benchmarks.report.tables import grid, size_of
from tcgemm import _tables
from tcgemm.measure import results
from tcgemm.measure.cases import CLIFF
from tcgemm.measure.results import Results

WORST = 5  # so many losses are named
# The words of an outcome in a table. "so far" is added where repetitions are missing.
WORDS = {"PASS": "met", "MISS": "missed", "UNCLEAR": "not clear"}
TARGETS_NOTE = (
    "Geometric means over cubes (f32: each cube; 2:4 of 16 bits and 1:2: all shapes), and the "
    "largest error over its bound."
)
CLIFF_NOTE = (
    f"The slowest of 4096 and {', '.join(map(str, CLIFF))} in M, N, K or all three, over the "
    "fastest: 1 is ideal. TMA reads rows whose length is a multiple of 16 bytes. Where K is none, "
    "operands are copied first."
)


def text(measured: Results) -> str:
    """The conditions of the measurement, and the result on the whole."""
    # A forced kernel is not the one that a user gets.
    rows = [row for row in current.without_stale(measured).rows if ":" not in row["set"]]
    head = measured.header
    spans = [results.span(row) for row in rows if ratio(row)]
    words = [results.claim(span, 1.0) for span in spans if span]
    commits = sorted({row["commit"] for row in measured.rows})
    result = (
        f"{head.get('gpu')}, driver {head.get('driver')}, torch {head.get('torch')}, "
        f"CUDA {head.get('cuda')}, commit {', '.join(commits)}. "
        f"Of {len(words)} cases tcgemm is at least as fast as torch in {words.count('PASS')} "
        f"and slower in {words.count('MISS')}, in all of their repetitions."
    )
    if count := len(current.stale(measured)):
        result += (
            f" {count} rows with the mark {current.MARK} are not of today's kernels and count in "
            "no sentence, mean or picture."
        )
    clocks = [row["clock_mhz"] for row in rows if row["clock_mhz"]]
    powers = [row["power_w"] for row in rows if row["power_w"]]
    if clocks and powers:
        result += (
            f" SM clock {min(clocks):.0f}-{max(clocks):.0f} MHz, "
            f"power up to {max(powers):.0f} W while measuring."
        )
    failures = [row for row in rows if row["us"] is None or row["exact"] is False]
    if failures:
        result += f" {len(failures)} cases failed: see results/{results.file_name(head['gpu'])}."
    slowest = sorted((row for row in rows if (ratio(row) or 1) < 1), key=ratio)[:WORST]
    losses = [
        f"{row['function']} {row['dtype']} {row['layout']} {size_of(row)} {ratio(row):.2f} "
        f"({row['kernel']})"
        for row in slowest
    ]
    return f"{result}\n\nFurthest behind torch: {'; '.join(losses)}." if losses else result


def target_parts(measured: Results) -> list[str]:
    """The targets of whole sets: geometric mean, lowest shape, largest error."""
    rows = []
    for outcome in targets.outcomes(measured):
        figures = ["-", "-"]
        if outcome.span is not None:
            low, high = outcome.span
            several = max(map(len, outcome.repetitions)) > 1
            spread = f" ({low:.3f}-{high:.3f})" if several else ""
            figures = [f"**{outcome.mean:.3f}**{spread}", f"{outcome.lowest:.3f}"]
        error = f"{max(outcome.errors):.2f}" if outcome.errors else "-"
        word, *rest = outcome.word.split(" ", 1)
        word = " ".join([WORDS.get(word, word), *rest])
        rows.append((outcome.name, f"{outcome.target.least:.2f}", *figures, error, word))
    heads = ("x", "target", "reached", "lowest", "error", "")
    return ["### Targets", TARGETS_NOTE, _tables.markdown(heads, rows)] if rows else []


def cliff_parts(measured: Results) -> list[str]:
    """Slowest over fastest of the sizes around 4096, by the size that is varied."""
    cells = {
        (dtype, axis): f"{spread:.2f}"
        for dtype, spreads in targets.cliffs(measured).items()
        for axis, spread in spreads.items()
    }
    table = grid(cells, targets.CLIFF_AXES)
    return ["### Even times beside 4096", CLIFF_NOTE, table] if cells else []
