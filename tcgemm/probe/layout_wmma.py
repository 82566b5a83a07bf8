"""Which lane and register of a fragment of wmma holds which element, found on the GPU.

PTX leaves these layouts open. So nothing is assumed of them: matrices that have the numbers of
their elements, digit by digit, are loaded as fragments, and a fragment that has the numbers of its
places is stored. Both have to name the same places of the result, each element of a and b has to
have a place, and a product has to be right. The record says how often an element is there, and
which fragments of m16n16 are those of mma.sync: blocks of eight columns, one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from tcgemm import _driver
from tcgemm.emulate import ptx
from tcgemm.emulate.instruction import TORCH
from tcgemm.numerics import device
from tcgemm.probe import layout, rows
from tcgemm.probe.kernels_mma import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from tcgemm.emulate.table import Instruction
    from tcgemm.probe.session import Session

    # {operand: matrices (tiles, rows, columns)}, and words of a fragment of d for tiles ->
    # {operand: words (tiles, registers, lanes)}, products and stored fragments (tiles, m, n)
    Run = Callable[[dict[str, Tensor], Tensor], tuple[dict[str, Tensor], Tensor, Tensor]]

FAMILIES = ("wmma",)
OPERANDS = "abc"
MOST = 8  # random elements of a product are below; its sums are exact in float16


def instructions(arch: str, wanted: str | None) -> list[Instruction]:
    """The rows that are measured. XOR has the layout of AND."""
    return [row for row in rows.select(arch, FAMILIES, wanted) if "xor" not in row.name]


def shape(known: Instruction, operand: str) -> tuple[int, int]:
    """(rows, columns) of a, of b with k in the columns, and of c and d."""
    m, n, k = known.shape
    return {"a": (m, k), "b": (n, k)}.get(operand, (m, n))


def element(known: Instruction, operand: str) -> str:
    """The type of an operand."""
    return {"a": known.input, "b": known.input_b}.get(operand, known.accumulator)


def kernel(known: Instruction, target: str) -> str:
    """A PTX module whose entry `run` loads a, b and c of tile x, and stores their fragments, the
    product, and the matrix of another fragment.
    """
    names = ("a", "b", "c", "fa", "fb", "fc", "fd", "product", "matrix")
    parameters = ", ".join(f".param .u64 p{name}" for name in names)
    counts = dict(zip(OPERANDS, ptx.counts(known), strict=True))
    size = f"m{known.shape[0]}n{known.shape[1]}k{known.shape[2]}"
    kinds = {each: ptx.kind_of(element(known, each)) for each in OPERANDS}
    lines = [
        _driver.head(target),
        f".visible .entry run({parameters}) {{",
        *(f".reg .{SUFFIX[kinds[each]]} %{each}<{counts[each]}>;" for each in OPERANDS),
        ".reg .b32 %tile, %lane;",
        ".reg .b64 %at, %byte;",
        "mov.u32 %tile, %ctaid.x;",
        "mov.u32 %lane, %tid.x;",
    ]

    def matrix(name: str, operand: str) -> list[str]:
        height, width = shape(known, operand)
        tile = height * width * ptx.BITS[element(known, operand)] // 8
        return [f"ld.param.u64 %at, [p{name}];", f"mad.wide.u32 %at, %tile, {tile}, %at;"]

    def fragment(name: str, operand: str, access: str) -> list[str]:
        bytes_of = 8 if kinds[operand] == "d" else 4
        row = bytes_of * device.LANES
        found = [
            f"ld.param.u64 %at, [p{name}];",
            f"mad.wide.u32 %at, %tile, {row * counts[operand]}, %at;",
            f"mad.wide.u32 %at, %lane, {bytes_of}, %at;",
        ]
        form = f"{access}.global.{SUFFIX[kinds[operand]]}"
        for index in range(counts[operand]):
            pair = [f"%{operand}{index}", f"[%at + {index * row}]"]
            found.append(f"{form} {', '.join(pair if access == 'ld' else pair[::-1])};")
        return found

    def access(form: str, operand: str) -> str:
        order = "col" if operand == "b" else "row"
        of = f"{size}.global.{element(known, operand)}"
        both = [ptx.registers(operand, counts[operand]), "[%at]"]
        both = both if form.startswith("load") else both[::-1]
        stride = shape(known, operand)[1]
        return f"wmma.{form}.sync.aligned.{order}.{of} {', '.join(both)}, {stride};"

    for each in OPERANDS:
        lines += [*matrix(each, each), access(f"load.{each}", each)]
    for each in OPERANDS:
        lines += fragment(f"f{each}", each, "st")
    a, b, c = (ptx.registers(each, counts[each]) for each in OPERANDS)
    lines.append(ptx.instruction(known, a, b, c, c))
    lines += [*matrix("product", "c"), access("store.d", "c")]
    lines += fragment("fd", "c", "ld")
    lines += [*matrix("matrix", "c"), access("store.d", "c")]
    return "\n".join([*lines, "ret;", "}", ""])


# Numbers as digits.


def digits(count: int, base: int) -> Tensor:
    """(digits, numbers below count), the lowest digit first."""
    numbers, found = torch.arange(count), []
    while not found or base ** len(found) < count:
        found.append(numbers // base ** len(found) % base)
    return torch.stack(found)


def number_of(values: Tensor, base: int) -> Tensor:
    """(digits, ..) -> the numbers."""
    powers = base ** torch.arange(values.shape[0])
    return (values * powers.view(-1, *[1] * (values.dim() - 1))).sum(0)


def _base(name: str) -> int:
    return 256 if name in ("f32", "s32") else layout.BASES.get(name, 2)


def unpacked(words: Tensor, name: str) -> Tensor:
    """Words (..) -> (.., elements) whole numbers; those of 4 bits are not negative here."""
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


def of_mma(known: Instruction, operand: str) -> Tensor:
    """The numbers of the elements in mma.sync's fragments: (registers, lanes, elements)."""
    columns = 8 if operand != "a" else known.shape[1]
    blocks = known.shape[1] // columns
    one = replace(known, family="mma", shape=(known.shape[0], 8, known.shape[2]))
    row, column = device.places(one, {"c": "d"}.get(operand, operand))
    width = shape(known, operand)[1]
    if operand == "b":
        return torch.cat([(row + 8 * block) * width + column for block in range(blocks)])
    return torch.cat([row * width + column + 8 * block for block in range(blocks)])


def check(known: Instruction, run: Run) -> dict[str, Any]:
    """The facts of a row."""
    counts = dict(zip(OPERANDS, ptx.counts(known), strict=True))
    types = {each: element(known, each) for each in OPERANDS}
    numbers = {each: digits(_size(known, each), _base(types[each])) for each in OPERANDS}
    width = max(1, 32 // ptx.BITS[types["c"]])
    places = counts["c"] * device.LANES * width
    numbers["fragment"] = digits(places, _base(types["c"]))
    tiles = 1 + max(each.shape[0] for each in numbers.values())
    generator = torch.Generator().manual_seed(0)
    matrices = {}
    for each in OPERANDS:
        made = torch.randint(0, MOST, (tiles, _size(known, each)), generator=generator)
        made %= min(_base(types[each]), MOST)
        made[: numbers[each].shape[0]] = numbers[each]
        matrices[each] = made.view(tiles, *shape(known, each))
    own = torch.zeros(tiles, places, dtype=torch.int64)
    own[: numbers["fragment"].shape[0]] = numbers["fragment"]
    own = own.view(tiles, counts["c"], device.LANES, width)
    fragments, product, stored = run(
        {each: words_of(matrices[each], types[each]) for each in OPERANDS},
        device.pack(own.to(TORCH[types["c"]]), types["c"]),
    )
    found, often, wrong = {}, {}, 0
    for each in OPERANDS:
        values = unpacked(fragments[each], types[each])[: numbers[each].shape[0]]
        found[each] = number_of(values, _base(types[each]))
        inside = found[each].flatten().clamp(0, _size(known, each) - 1)
        seen = torch.bincount(inside, minlength=_size(known, each))
        often[each] = int(seen.min())
        wrong += int((seen == 0).sum())
    values = matrix_of(stored, types["c"])[: numbers["fragment"].shape[0]]
    back = number_of(values, _base(types["c"])).flatten().clamp(0, places - 1)
    wrong += int((found["c"].flatten()[back] != torch.arange(back.numel())).sum())
    a, b, c = (matrices[each][-1] for each in OPERANDS)
    wrong += int((matrix_of(product[-1], types["c"]) != a @ b.mT + c).sum())
    same = [each for each in OPERANDS if _is_mma(known, each, found[each])]
    elements = sum(_size(known, each) for each in OPERANDS)
    return {"elements": elements, "wrong": wrong, "copies": often, "as_mma": same}


def _size(known: Instruction, operand: str) -> int:
    height, width = shape(known, operand)
    return height * width


def _is_mma(known: Instruction, operand: str, found: Tensor) -> bool:
    if known.shape[:2] not in ((16, 16), (8, 8)):
        return False
    wanted = of_mma(known, operand)
    return wanted.shape[0] <= found.shape[0] and bool((found[: wanted.shape[0]] == wanted).all())


def runner(known: Instruction, target: str) -> Run:
    """Runs tiles on the GPU."""
    module = _driver.load(kernel(known, target).encode())
    entry = _driver.function(module, "run")
    counts = dict(zip(OPERANDS, ptx.counts(known), strict=True))

    def run(
        matrices: dict[str, Tensor], fragment: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        inputs = [matrices[each].contiguous().to(device.DEVICE) for each in OPERANDS]
        tiles = fragment.shape[0]
        fragments = [
            torch.zeros(tiles, counts[each], device.LANES, dtype=of.dtype, device=device.DEVICE)
            for each, of in zip(OPERANDS, inputs, strict=True)
        ]
        product, stored = (torch.zeros_like(inputs[2]) for _ in range(2))
        own = fragment.contiguous().to(device.DEVICE)
        arguments = [*inputs, *fragments, own, product, stored]
        _driver.launch(entry, tiles, device.LANES, arguments)
        made = {each: of.cpu() for each, of in zip(OPERANDS, fragments, strict=True)}
        return made, product.cpu(), stored.cpu()

    return run


def measure(session: Session, known: Instruction) -> Iterator[dict[str, Any]]:
    """The record of a row."""
    facts = check(known, runner(known, session.target))
    named = {"group": "layout", "row": rows.label(known), "mode": "layout"}
    yield named | {"native": known.is_native} | facts
