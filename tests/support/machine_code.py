"""The machine code of every kernel as a table, to prove that a change of names moved none of it.

    python tests/support/machine_code.py compare                     tcgemm/libtcgemm.so
    python tests/support/machine_code.py compare --partial --objects build/cuda/obj/kernels/sm80
    python tests/support/machine_code.py write                       makes the table anew

    library or objects --cuobjdump--> cubins --ELF--> {kernel, architecture: entry}
    tests/data/machine_code.json --names--> {kernel, architecture: entry}            equal?

An entry has the SHA-256 of the kernel's .text section, its registers, stack and static shared
memory, and the size of each of its constant banks. A kernel of the catalog stands under the names
of its row and its epilogue path, whatever the index; a pass under the name of its function with its
template arguments.
tests/data/machine_code_names.json maps the names of the table to today's:

    row_kernel   a regular expression that finds the index of a row, and the number of its
                 EpiloguePath, in the name of its function
    rows         [[pattern, replacement], ...] for re.sub, one after another, on names of rows
    functions    the same on names of functions

Two names that become one, a name that only one side has, and an entry that differs are reported,
and the exit status is 1. Another compiler, or other flags, make other code: compare then says so,
compares nothing, and the exit status is 0. `--partial` allows kernels of the table to be absent.

A build leaves the objects of files that have moved: prefer the library, which has none of them.
"""

import argparse
import ast
import hashlib
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "data" / "machine_code.json"
NAMES = ROOT / "tests" / "data" / "machine_code_names.json"
LIBRARY = ROOT / "tcgemm" / "libtcgemm.so"
# Kinds of records in a cubin's .nv.info: (symbol, value) of every function.
REGISTERS, FRAME = 0x2F, 0x11
# csrc/core/epilogue_path.h
EPILOGUE_PATHS = ("direct", "plain", "fused", "rolled", "columns", "slices")
ANONYMOUS = re.compile(r"_GLOBAL__N__\w+")  # has the file's name in it


def find_cuobjdump() -> str:
    """The one on PATH, of the pip toolkit, or of Triton, which comes with torch."""
    if path := shutil.which("cuobjdump"):
        return path
    for package, folder in (("nvidia", "cu13/bin"), ("triton", "backends/nvidia/bin")):
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations if spec else ():
            if (tool := Path(place) / folder / "cuobjdump").is_file():
                return str(tool)
    raise RuntimeError("cuobjdump is on neither PATH nor in the packages nvidia and triton.")


def sections(image: bytes) -> list[tuple[str, bytes, int]]:
    """(name, bytes, size) of the sections of a 64-bit ELF file; a section of zeros has no bytes."""
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("This is no 64-bit ELF file.")
    (start,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, start + i * size) for i in range(count)]
    names = headers[names_index][4]
    result = []
    for name, kind, _, _, offset, length in headers:
        end = image.index(b"\0", names + name)
        nobits = kind == 8
        data = b"" if nobits else image[offset : offset + length]
        result.append((image[names + name : end].decode(), data, length))
    return result


def symbols(table: bytes, strings: bytes) -> list[str]:
    """The names of a symbol table, by index."""
    starts = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24)]
    return [strings[start : strings.index(b"\0", start)].decode() for start in starts]


def attributes(info: bytes, names: list[str]) -> dict[tuple[str, int], int]:
    """{(function, kind): value} of the records of .nv.info that are such pairs."""
    values, at = {}, 0
    while at < len(info):
        form, kind, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != 4:  # the value is in the header
            continue
        if kind in (REGISTERS, FRAME):
            symbol, value = struct.unpack_from("<II", info, at)
            values[names[symbol], kind] = value
        at += length
    return values


def read_cubin(image: bytes) -> tuple[str, str, str, dict[str, dict]]:
    """(architecture, compiler, its flags, {mangled function: entry}) of a cubin."""
    parts = sections(image)
    data = {name: content for name, content, _ in parts}
    # The last three strings of the note are the compiler, its build and its flags.
    note = [text.decode() for text in data[".note.nv.tkinfo"].split(b"\0") if len(text) > 5]
    release, build, flags = note[-3:]
    arch = re.search(r"-arch (\w+)", flags).group(1)
    values = attributes(data[".nv.info"], symbols(data[".symtab"], data[".strtab"]))
    entries = {}
    for name, content, _ in parts:
        if not name.startswith(".text."):
            continue
        function = name.removeprefix(".text.")
        banks = {
            match.group(1): size
            for other, _, size in parts
            if (match := re.fullmatch(r"\.nv\.constant(\d+)\." + re.escape(function), other))
        }
        entries[function] = {
            "text": hashlib.sha256(content).hexdigest(),
            "registers": values[function, REGISTERS],
            "stack": values[function, FRAME],
            "shared": sum(size for other, _, size in parts if other == f".nv.shared.{function}"),
            "constant": " ".join(f"{bank}:{banks[bank]}" for bank in sorted(banks)),
        }
    return arch, f"{release} {build}", " ".join(flags.split()), entries


def demangle(mangled: list[str]) -> dict[str, str]:
    """{mangled: name with template arguments, without result and parameters}."""
    if not mangled:
        return {}
    command = ["c++filt", "--", *mangled]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(zip(mangled, map(short, text.splitlines()), strict=True))


def short(name: str) -> str:
    """`void a::f<(a::T)2>(a::P)` -> `a::f<(a::T)2>`."""
    name = ANONYMOUS.sub("(anonymous namespace)", name).removeprefix("void ")
    if not name.endswith(")"):
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return name[:at]
    return name


def row_names(library: Path) -> list[str]:
    """The names of the catalog's rows by index, from the library that has the kernels."""
    code = (
        "import json; from tcgemm import info; "
        "print(json.dumps(info.catalog() + info.catalog(grouped=True)))"
    )
    environ = {**os.environ, "TCGEMM_LIBRARY": str(library.resolve())}
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"{library} does not say what its rows are: {process.stderr}")
    return [row["name"] for row in json.loads(process.stdout)]


def extract(files: list[Path]) -> list[bytes]:
    """The cubins that are in libraries or objects, decompressed."""
    images = []
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            command = [find_cuobjdump(), "-xelf", "all", str(file.resolve())]
            process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if process.returncode:
                text = process.stderr + process.stdout
                raise RuntimeError(f"cuobjdump cannot read {file}: {text}")
            images += [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    return images


def put(table: dict[str, dict], key: str, entry: dict) -> None:
    """Adds an entry; one that is there already must be the same."""
    if table.setdefault(key, entry) != entry:
        raise RuntimeError(f"{key} stands twice, with different code.")


def read(files: list[Path], rows: list[str], row_kernel: str) -> dict:
    """The table of these files: who made them, and an entry for each kernel and architecture."""
    compilers, flags, kernels = set(), set(), {}
    for image in extract(files):
        arch, compiler, ptxas, entries = read_cubin(image)
        compilers.add(compiler)
        flags.add(ptxas)
        names = demangle(list(entries))
        for symbol, entry in entries.items():
            name = names[symbol]
            if match := re.search(row_kernel, name):
                name = f"{rows[int(match.group(1))]} {EPILOGUE_PATHS[int(match.group(2))]}"
            put(kernels, f"{name} {arch}", entry)
    return {
        "compiler": sorted(compilers),
        "flags": sorted(flags),
        "kernels": dict(sorted(kernels.items())),
    }


def rename(kernels: dict[str, dict], names: dict) -> tuple[dict[str, dict], list[str]]:
    """The kernels of the table under today's names, and complaints about names that collide."""
    renamed, complaints, origin = {}, [], {}
    for key, entry in kernels.items():
        name, arch = key.rsplit(" ", 1)
        # Functions have scopes, rows do not.
        for pattern, replacement in names["functions" if "::" in name else "rows"]:
            name = re.sub(pattern, replacement, name)
        new = f"{name} {arch}"
        if new in renamed:
            complaints.append(f"{key} and {origin[new]} both become {new}")
        renamed[new], origin[new] = entry, key
    return renamed, complaints


def compare(recorded: dict, current: dict, names: dict, partial: bool = False) -> list[str]:
    """The differences, a line each; with `partial`, kernels of the table may be absent."""
    old, complaints = rename(recorded["kernels"], names)
    new = current["kernels"]
    if not partial:
        complaints += [f"{key} is only in the table" for key in old.keys() - new.keys()]
    complaints += [f"{key} is not in the table" for key in new.keys() - old.keys()]
    for key in old.keys() & new.keys():
        changes = [
            f"{field} {old[key][field]} -> {new[key][field]}"
            for field in old[key]
            if old[key][field] != new[key][field]
        ]
        if changes:
            complaints.append(f"{key} differs: {', '.join(changes)}")
    return sorted(complaints)


def not_comparable(recorded: dict, current: dict) -> str:
    """Why equal sources need not give equal code; "" where they do."""
    for field in ("compiler", "flags", "nvcc_flags"):
        old, new = recorded[field], current[field]
        if not set(new) <= set(old):
            return f"nothing is compared: {field} of the table {old}, of this build {new}"
    return ""


def nvcc_flags() -> list[str]:
    """NVCC_FLAGS of setup.py, which is not run for it."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "NVCC_FLAGS":
            return node.value.func.value.value.split()
    raise RuntimeError("setup.py has no NVCC_FLAGS.")


def text(table: dict) -> str:
    """JSON with a line for each kernel."""
    head = [
        f" {json.dumps(name)}: {json.dumps(table[name])}," for name in table if name != "kernels"
    ]
    lines = [f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in table["kernels"].items()]
    return "\n".join(["{", *head, ' "kernels": {', ",\n".join(lines), " }", "}"]) + "\n"


def parse(argv: list[str] | None) -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("command", choices=("write", "compare"))
    parser.add_argument("--library", type=Path, default=LIBRARY, help="of a CUDA build")
    parser.add_argument("--objects", type=Path, nargs="+", help="its .cu.o files or folders")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--names", type=Path, default=NAMES)
    parser.add_argument("--partial", action="store_true", help="compare what is there")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    files = [options.library]
    if options.objects:
        folders = [sorted(p.rglob("*.cu.o")) if p.is_dir() else [p] for p in options.objects]
        files = [file for paths in folders for file in paths]
    names = json.loads(options.names.read_text())
    current = {"nvcc_flags": nvcc_flags()} | read(
        files, row_names(options.library), names["row_kernel"]
    )
    count = len(current["kernels"])
    if not count:
        raise RuntimeError(f"no kernel is in {', '.join(map(str, files or options.objects))}")
    if options.command == "write":
        options.table.write_text(text(current))
        print(f"{options.table}: {count} entries, a kernel and an architecture each")
        return 0
    recorded = json.loads(options.table.read_text())
    if reason := not_comparable(recorded, current):
        print(reason)
        return 0
    complaints = compare(recorded, current, names, options.partial)
    print("\n".join([*complaints, f"{count} entries compared, {len(complaints)} complaints"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"machine_code: {error}")
