"""Which lane and register of a fragment of wmma holds which element, found on the GPU.

PTX leaves these layouts open. So nothing is assumed of them: matrices that have the numbers of
their elements, digit by digit, are loaded as fragments, and a fragment that has the numbers of its
places is stored. Both have to name the same places of the result, each element of a and b has to
have a place, and a product has to be right. The record says how often an element is there, and
which fragments of m16n16 are as of mma.sync: blocks of eight columns, one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from tcgemm import _driver
from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.lab.probe import layout, rows
from tcgemm.lab.probe.kernels_mma import SUFFIX
from tcgemm.numerics import device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from tcgemm.emulate.table import Instruction
    from tcgemm.lab.probe.session import Session

    # {operand: matrices (tiles, rows, columns)}, and words of a fragment of d for tiles ->
    # {operand: words (tiles, registers, lanes)}, products and stored fragments (tiles, m, n)
    Run = Callable[[dict[str, Tensor], Tensor], tuple[dict[str, Tensor], Tensor, Tensor]]

FAMILIES = ("wmma",)
OPERANDS = "abc"
MOST = 8  # random elements of a product are below; its sums are exact in float16


def instructions(arch: str, filter_text: str | None) -> list[Instruction]:
    """The rows that are measured. XOR has the layout of AND."""
    return [row for row in rows.select(arch, FAMILIES, filter_text) if "xor" not in row.name]


def shape(mma: Instruction, operand: str) -> tuple[int, int]:
    """(rows, columns) of a, of b with k in the columns, and of c and d."""
    m, n, k = mma.shape
    return {"a": (m, k), "b": (n, k)}.get(operand, (m, n))


def element(mma: Instruction, operand: str) -> str:
    """The type of an operand."""
    return {"a": mma.input, "b": mma.input_b}.get(operand, mma.accumulator)


def kernel(mma: Instruction, target: str) -> str:
    """A PTX module whose entry `run` loads a, b and c of tile x, and stores their fragments, the
    product, and the matrix of another fragment.
    """
    names = ("a", "b", "c", "fa", "fb", "fc", "fd", "product", "matrix")
    parameters = ", ".join(f".param .u64 p{name}" for name in names)
    counts = dict(zip(OPERANDS, ptx.counts(mma), strict=True))
    size = f"m{mma.shape[0]}n{mma.shape[1]}k{mma.shape[2]}"
    kinds = {operand: ptx.kind_of(element(mma, operand)) for operand in OPERANDS}
    lines = [
        _driver.head(target),
        f".visible .entry run({parameters}) {{",
        *(f".reg .{SUFFIX[kinds[operand]]} %{operand}<{counts[operand]}>;" for operand in OPERANDS),
        ".reg .b32 %tile, %lane;",
        ".reg .b64 %at, %byte;",
        "mov.u32 %tile, %ctaid.x;",
        "mov.u32 %lane, %tid.x;",
    ]

    def matrix(name: str, operand: str) -> list[str]:
        height, width = shape(mma, operand)
        tile = height * width * ptx.BITS[element(mma, operand)] // 8
        return [f"ld.param.u64 %at, [p{name}];", f"mad.wide.u32 %at, %tile, {tile}, %at;"]

    def fragment(name: str, operand: str, access: str) -> list[str]:
        bytes_of = 8 if kinds[operand] == "d" else 4
        row = bytes_of * device.LANES
        lines = [
            f"ld.param.u64 %at, [p{name}];",
            f"mad.wide.u32 %at, %tile, {row * counts[operand]}, %at;",
            f"mad.wide.u32 %at, %lane, {bytes_of}, %at;",
        ]
        form = f"{access}.global.{SUFFIX[kinds[operand]]}"
        for index in range(counts[operand]):
            pair = [f"%{operand}{index}", f"[%at + {index * row}]"]
            lines.append(f"{form} {', '.join(pair if access == 'ld' else pair[::-1])};")
        return lines

    def access(form: str, operand: str) -> str:
        order = "col" if operand == "b" else "row"
        of = f"{size}.global.{element(mma, operand)}"
        operands = [ptx.registers(operand, counts[operand]), "[%at]"]
        operands = operands if form.startswith("load") else operands[::-1]
        stride = shape(mma, operand)[1]
        return f"wmma.{form}.sync.aligned.{order}.{of} {', '.join(operands)}, {stride};"

    for operand in OPERANDS:
        lines += [*matrix(operand, operand), access(f"load.{operand}", operand)]
    for operand in OPERANDS:
        lines += fragment(f"f{operand}", operand, "st")
    a, b, c = (ptx.registers(operand, counts[operand]) for operand in OPERANDS)
    lines.append(ptx.instruction(mma, a, b, c, c))
    lines += [*matrix("product", "c"), access("store.d", "c")]
    lines += fragment("fd", "c", "ld")
    lines += [*matrix("matrix", "c"), access("store.d", "c")]
    return "\n".join([*lines, "ret;", "}", ""])


# Numbers as digits.


def digits(count: int, base: int) -> Tensor:
    """(digits, numbers below count), the lowest digit first."""
    numbers, columns = torch.arange(count, device="cpu"), []
    while not columns or base ** len(columns) < count:
        columns.append(numbers // base ** len(columns) % base)
    return torch.stack(columns)


def number_of(values: Tensor, base: int) -> Tensor:
    """(digits, ..) -> the numbers."""
    powers = base ** torch.arange(values.shape[0], device="cpu")
    return (values * powers.view(-1, *[1] * (values.dim() - 1))).sum(0)


def _base(name: str) -> int:
    return 256 if name in ("f32", "s32") else layout.BASES.get(name, 2)


def unpacked(words: Tensor, name: str) -> Tensor:
    """Words (..) -> (.., elements) whole numbers; numbers of 4 bits are not negative here."""
    bits = ptx.BITS[name]
    if bits >= 8:
        return words.unsqueeze(-1).contiguous().view(TORCH[name]).to(torch.int64)
    fields = [(words >> at) & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return torch.stack(fields, dim=-1).to(torch.int64)


def words_of(values: Tensor, name: str) -> Tensor:
    """Whole numbers (.., rows, columns) -> words of memory (.., rows, words)."""
    width = max(1, 32 // ptx.BITS[name])
    return device.pack(values.unflatten(-1, (-1, width)).to(TORCH[name]), name)


def matrix_of(words: Tensor, name: str) -> Tensor:
    """The way back."""
    return unpacked(words, name).flatten(-2)


# One row.


def of_mma(mma: Instruction, operand: str) -> Tensor:
    """The numbers of the elements in mma.sync's fragments: (registers, lanes, elements)."""
    columns = 8 if operand != "a" else mma.shape[1]
    blocks = mma.shape[1] // columns
    block_row = replace(mma, family="mma", shape=(mma.shape[0], 8, mma.shape[2]))
    row, column = device.places(block_row, {"c": "d"}.get(operand, operand))
    width = shape(mma, operand)[1]
    if operand == "b":
        return torch.cat([(row + 8 * block) * width + column for block in range(blocks)])
    return torch.cat([row * width + column + 8 * block for block in range(blocks)])


def check(mma: Instruction, run: Run) -> dict[str, Any]:
    """The facts of a row."""
    counts = dict(zip(OPERANDS, ptx.counts(mma), strict=True))
    types = {operand: element(mma, operand) for operand in OPERANDS}
    numbers = {operand: digits(_size(mma, operand), _base(types[operand])) for operand in OPERANDS}
    width = max(1, 32 // ptx.BITS[types["c"]])
    places = counts["c"] * device.LANES * width
    numbers["fragment"] = digits(places, _base(types["c"]))
    tiles = 1 + max(value.shape[0] for value in numbers.values())
    generator = torch.Generator().manual_seed(0)
    matrices = {}
    for operand in OPERANDS:
        matrix = torch.randint(
            0, MOST, (tiles, _size(mma, operand)), generator=generator, device="cpu"
        )
        matrix %= min(_base(types[operand]), MOST)
        matrix[: numbers[operand].shape[0]] = numbers[operand]
        matrices[operand] = matrix.view(tiles, *shape(mma, operand))
    own = torch.zeros(tiles, places, dtype=torch.int64, device="cpu")
    own[: numbers["fragment"].shape[0]] = numbers["fragment"]
    own = own.view(tiles, counts["c"], device.LANES, width)
    fragments, product, stored_tile = run(
        {operand: words_of(matrices[operand], types[operand]) for operand in OPERANDS},
        device.pack(own.to(TORCH[types["c"]]), types["c"]),
    )
    element_numbers, copies, errors = {}, {}, 0
    for operand in OPERANDS:
        values = unpacked(fragments[operand], types[operand])[: numbers[operand].shape[0]]
        element_numbers[operand] = number_of(values, _base(types[operand]))
        indices = element_numbers[operand].flatten().clamp(0, _size(mma, operand) - 1)
        occurrences = torch.bincount(indices, minlength=_size(mma, operand))
        copies[operand] = int(occurrences.min())
        errors += int((occurrences == 0).sum())
    values = matrix_of(stored_tile, types["c"])[: numbers["fragment"].shape[0]]
    stored_places = number_of(values, _base(types["c"])).flatten().clamp(0, places - 1)
    c_numbers = element_numbers["c"].flatten()[stored_places]
    errors += int((c_numbers != torch.arange(stored_places.numel(), device="cpu")).sum())
    a, b, c = (matrices[operand][-1] for operand in OPERANDS)
    errors += int((matrix_of(product[-1], types["c"]) != a @ b.mT + c).sum())
    as_mma = [operand for operand in OPERANDS if _is_mma(mma, operand, element_numbers[operand])]
    elements = sum(_size(mma, operand) for operand in OPERANDS)
    return {"elements": elements, "wrong": errors, "copies": copies, "as_mma": as_mma}


def _size(mma: Instruction, operand: str) -> int:
    height, width = shape(mma, operand)
    return height * width


def _is_mma(mma: Instruction, operand: str, places: Tensor) -> bool:
    if mma.shape[:2] not in ((16, 16), (8, 8)):
        return False
    expected = of_mma(mma, operand)
    count = expected.shape[0]
    return count <= places.shape[0] and bool((places[:count] == expected).all())


def runner(mma: Instruction, target: str) -> Run:
    """Runs tiles on the GPU."""
    module = _driver.load(kernel(mma, target).encode())
    entry = _driver.function(module, "run")
    counts = dict(zip(OPERANDS, ptx.counts(mma), strict=True))

    def run(
        matrices: dict[str, Tensor], fragment: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        inputs = [matrices[name].contiguous().to(device.DEVICE) for name in OPERANDS]
        tiles = fragment.shape[0]
        fragments = [
            torch.zeros(tiles, counts[name], device.LANES, dtype=of.dtype, device=device.DEVICE)
            for name, of in zip(OPERANDS, inputs, strict=True)
        ]
        product, copy = (torch.zeros_like(inputs[2]) for _ in range(2))
        own = fragment.contiguous().to(device.DEVICE)
        arguments = [*inputs, *fragments, own, product, copy]
        _driver.launch(entry, tiles, device.LANES, arguments)
        values = {name: of.cpu() for name, of in zip(OPERANDS, fragments, strict=True)}
        return values, product.cpu(), copy.cpu()

    return run


def measure(session: Session, mma: Instruction) -> Iterator[dict[str, Any]]:
    """The record of a row."""
    facts = check(mma, runner(mma, session.target))
    fields = {"group": "layout", "row": rows.label(mma), "mode": "layout"}
    yield fields | {"native": mma.is_native} | facts
