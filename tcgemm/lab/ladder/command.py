"""tcgemm ladder: GEMM kernels from the first attempt to what bounds the tensor cores.

000    a float16 GEMM for Turing: large tiles, padding, stores between products
001    float64 by WMMA: from one instruction to tiles in shared memory
002    from a thread for each element to warp tiles of WMMA
003    what asynchronous copies and permuted rows bring, alone and together
004    mma.sync in seven steps

Each step is one idea, a file of csrc/lab. It is measured beside cuBLAS and the step before it.
Without a GPU the command prints the steps, and results that are stored with tcgemm.
"""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tcgemm.lab.ladder import checks, measure, plot, sources, stalls, tables
from tcgemm.lab.ladder.steps import steps
from tcgemm.measure import command_line
from tcgemm.measure.command_line import Interrupted


def parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    parser = command_line.parser("tcgemm ladder", __doc__)
    parser.add_argument("document", nargs="*", help="one or more of the above (all)")
    parser.add_argument("--size", type=int, help="M = N = K (the document's)")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    parser.add_argument("--resume", action="store_true", help="keep the records of --json's file")
    parser.add_argument(
        "--repetitions",
        type=int,
        default=measure.REPETITIONS,
        help=f"how often each step is measured ({measure.REPETITIONS})",
    )
    parser.add_argument("--plot", type=Path, help="draw the speeds into this folder, as PNG")
    parser.add_argument("--stored", type=Path, help="print this file's records, measure nothing")
    parser.add_argument("--steps", action="store_true", help="print what each step changes")
    parser.add_argument(
        "--stalls", action="store_true", help="ask Nsight Compute what warps wait for"
    )
    return parser


def _print_steps(documents: Sequence[str]) -> None:
    for document in documents:
        names = list(dict.fromkeys(step.name for step in steps(document)))
        print(sources.source(names[0]))
        for before, after in itertools.pairwise(names):
            print(sources.difference(before, after))


def _show(results: dict[str, Any], documents: Sequence[str], folder: Path | None) -> bool:
    """Prints tables and complaints; True if all results are right."""
    for table in tables.of(results, documents):
        print(table, end="\n\n", flush=True)
    records = [record for record in results["records"] if record["document"] in documents]
    selection = {"header": results["header"], "records": records}
    faults = checks.sentences(selection, checks.LIMITS)
    differences = checks.sentences(selection, checks.PATTERNS)
    if faults:
        print("These results are wrong:", *faults, sep="\n  ", end="\n\n")
    if differences:
        print("This GPU differs from what the steps promise:", *differences, sep="\n  ", end="\n\n")
    if folder is not None:
        for path in plot.draw(selection, documents, folder):
            print(f"wrote {path}")
    return not faults


def _without_gpu(documents: Sequence[str], folder: Path | None) -> None:
    print("torch finds no CUDA GPU. On one this would measure:\n")
    for document in documents:
        print(tables.table_of_steps(document), end="\n\n")
    files = measure.stored()
    if not files:
        print("No results are stored with this tcgemm.")
    for results in files.values():
        _show(results, documents, folder)


def _add_stalls(results: dict[str, Any], documents: Sequence[str], size: int | None) -> None:
    for document in documents:
        stall_counts = stalls.measure(document, size or measure.SIZES[document])
        for record in results["records"]:
            record |= stall_counts.get((record["step"], record["variant"]), {})


def run(arguments: list[str]) -> int:
    """Measures and prints; 1 if a result is wrong."""
    command = parser()
    options: Any = command.parse_args(arguments)
    try:
        documents = measure.check_documents(options.document)
        measure.check_size(options.size)
        if options.resume and options.json is None:
            raise ValueError("--resume needs the file of the records: --json FILE.")
        if options.steps:
            _print_steps(documents)
            return 0
        if options.stored is not None:
            return 0 if _show(measure.load(options.stored), documents, options.plot) else 1
        if not torch.cuda.is_available():
            _without_gpu(documents, options.plot)
            return 0
        try:
            results = measure.run(
                documents,
                options.size,
                path=options.json,
                resume=options.resume,
                repetitions=options.repetitions,
            )
        except Interrupted as stopped:
            _show(stopped.result, documents, options.plot)
            raise
        if options.stalls:
            _add_stalls(results, documents, options.size)
            if options.json is not None:
                measure.save(results, options.json)
        return 0 if _show(results, documents, options.plot) else 1
    except BrokenPipeError:
        raise
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        command.error(str(error))
