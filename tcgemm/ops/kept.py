"""The kept forms of weights: what is computed of a weight once, and read by many calls.

    the weight                             its kept form
    the parts of a packed weight           the device order: the same bytes as kernels read them
    a float32 weight                       its 16-bit terms
    the dense weight of a SparseLinear24   its elements at the kept positions

A KeptForm is the one owner of such tensors. It knows whether they are current, writes them again at
their address, and holds what captured CUDA graphs read. It notices what torch counts: changes in
place, by an optimizer too, other memory, another tensor. It does not notice a write past torch,
such as a collective, DLPack, numpy, a raw kernel or the replay of a graph: tcgemm.refresh_weights
is for these. Until then a product reads the kept form alone, and so the whole old weight.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from tcgemm.ops import query
from tcgemm.ops._torch_private import mark_static_address

Make = Callable[[], tuple[Tensor, ...]]  # computes the tensors of a form
NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
_capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing
_COLUMNS = 2**12  # words of 8 bytes in a row of a digest
_CHUNK = 2**26  # bytes whose digest is computed at a time


def capturing(tensor: Tensor) -> bool:
    """Are operations on the tensor captured in a CUDA graph now?"""
    return tensor.is_cuda and _capturing()


def changes(tensor: Tensor) -> int | None:
    """The changes in place that torch has counted; None for an inference tensor, which has no
    count."""
    return None if tensor.is_inference() else tensor._version


# What Guarded compares, to know whether a tensor is the same as when the guard was created: the
# tensor, its changes, its address, its strides and its storage. torch counts in-place changes, but
# not a change of the memory behind a tensor, as by module.to() or `w.data = ...`. So the guard has
# the address as well, and holds the storage so that no other tensor gets the address. Writes
# through w.data and to inference tensors go unnoticed. A plain tuple is unpacked faster than a
# NamedTuple.
TensorGuard = tuple[Tensor, int | None, int, tuple[int, ...], torch.UntypedStorage]


def guard_of(tensor: Tensor) -> TensorGuard:
    """The guard of a tensor as it is now."""
    memory = tensor.untyped_storage()
    return tensor, changes(tensor), tensor.data_ptr(), tensor.stride(), memory


class Guarded:
    """It is true while its guards find their tensors as they were; without guards it is false."""

    guards: tuple[TensorGuard, ...] = ()

    def __bool__(self) -> bool:
        for tensor, version, address, strides, _memory in self.guards:
            if (
                tensor.data_ptr() != address
                or tensor.stride() != strides
                or (version is not None and tensor._version != version)
            ):
                return False
        return bool(self.guards)

    # The getter is a C function: torch.compile guards on its result and does not trace it.
    unchanged: property = property(operator.truth)

    def is_of(self, sources: Sequence[Tensor]) -> bool:
        """Are the guards those of these tensors, the objects themselves?"""
        return _are([guard[0] for guard in self.guards], sources)


class KeptForm(Guarded):
    """Tensors that were computed of others, the sources, and are kept, on a GPU at one address.

    The guards are those of the sources. A form without guards is not current.
    """

    tensors: tuple[Tensor, ...]  # empty: nothing is kept
    beside: tuple[Tensor, ...]  # others that the same products read
    guards: tuple[TensorGuard, ...]
    graphs: list[tuple[Tensor, ...]]  # former tensors that captured graphs read
    settled: bool  # no kernel that may still run writes the tensors
    _captured: bool
    owner: object  # the first source, or what takes its place; None: nobody knows

    def __init__(self, *, compares: bool = False) -> None:
        """compares: sources that were written with the bytes that they had leave the form as it is.
        This reads them once more, and waits for the GPU."""
        self.tensors, self.beside, self.guards, self.graphs = (), (), (), []
        self._captured, self.settled, self.owner = False, True, None
        self._compares = compares
        self._digest: Tensor | None = None
        # Of launches on a GPU that read the tensors, and of writes. On the CPU, a call has the
        # tensors that were there when it began.
        self.lock: contextlib.AbstractContextManager[Any] = (
            NOTHING if torch.compiler.is_compiling() else threading.RLock()
        )

    def launching(self) -> contextlib.AbstractContextManager[Any]:
        """The block in which a call takes the tensors and launches a kernel that reads them."""
        return self.lock if self.tensors and self.tensors[0].is_cuda else NOTHING

    @property
    def captured(self) -> bool:
        """Does a captured CUDA graph read the tensors? The library notes the weights of the
        products that it launches in a capture."""
        if not self._captured:
            self._captured = any(_is_noted(tensor) for tensor in self.tensors)
        return self._captured

    @captured.setter
    def captured(self, value: bool) -> None:
        self._captured = value

    def current(self, sources: Sequence[Tensor], make: Make) -> tuple[Tensor, ...]:
        """The tensors, computed again if a source is another tensor or has changed."""
        with self.lock:  # another thread may be faster
            if self and self.is_of(sources):
                return self.tensors
            if self._is_same(sources):
                self.guards, self.owner = guards_of(sources), sources[0]
                return self.tensors
            return self._write(sources, make)

    def write(
        self, sources: Sequence[Tensor], make: Make, *, waits: bool = True
    ) -> tuple[Tensor, ...]:
        """The tensors, computed again in any case. waits=False: the caller waits for the GPU."""
        with self.lock:
            return self._write(sources, make, waits)

    def _write(
        self, sources: Sequence[Tensor], make: Make, waits: bool = True
    ) -> tuple[Tensor, ...]:
        """Computes the tensors, and writes them to the address of those before if they fit.

        Inside the capture of a CUDA graph the graph computes and writes them, in each replay. They
        are not current afterwards, because nothing was computed yet. Tensors without an address to
        be written to belong to the graph, and are not kept, nor is what comes of a FakeTensor.
        """
        with torch.inference_mode(False), torch.no_grad():
            # They are from before the call, because another thread may write while it computes.
            guards = guards_of(sources)
            new = make()
            fits = [_form(tensor) for tensor in new] == [_form(tensor) for tensor in self.tensors]
            fits = fits and (new[0].is_cuda or self.captured)
            recorded = capturing(new[0])
            if not (guards and have_memory(new)) or (recorded and not fits):
                return new
            if fits:
                for tensor, source in zip(self.tensors, new, strict=True):
                    with torch.inference_mode(tensor.is_inference()):
                        tensor.copy_(source)
            else:
                self._part(new)
            self.settled = not recorded
            if recorded:
                self.guards, self._captured = (), True
                return self.tensors
            self._digest = digest(sources) if self._compares else None
            if new[0].is_cuda:
                if not fits:
                    for tensor in new:  # graphs of torch.compile do not copy them
                        mark_static_address(tensor)
                if waits:
                    # Later products may run in other streams, and do not wait for this one.
                    torch.cuda.current_stream(new[0].device).synchronize()
            self.guards, self.owner = guards, sources[0]
        return self.tensors

    def _is_same(self, sources: Sequence[Tensor]) -> bool:
        """Have the sources the bytes that the form was made of?"""
        old = self._digest
        if old is None or not self.tensors or capturing(sources[0]):
            return False
        new = digest(sources)
        return new.device == old.device and torch.equal(new, old)

    def _part(self, new: tuple[Tensor, ...] = ()) -> None:
        """Lets the tensors go, but for those that captured graphs read, and takes new ones. Other
        threads see the former or the new ones."""
        if self.captured:
            self.graphs.append((*self.tensors, *self.beside))
        for tensor in new:  # a graph may have read former memory at this address
            _is_noted(tensor, forget=True)
        self.tensors, self.beside, self._captured = new, (), False

    @property
    def is_in_graphs(self) -> bool:
        """Do captured graphs read tensors that are or were kept here?"""
        return self.captured or bool(self.graphs)

    def hold(self, other: KeptForm) -> None:
        """Takes what captured graphs read of another form, which goes."""
        other._part()
        self.graphs += other.graphs

    def guard(self, sources: Sequence[Tensor]) -> None:
        """The tensors are those of these sources, too."""
        self.guards = guards_of(sources)
        self._digest = digest(sources) if self._compares else None

    def forget(self, owner: object = None) -> None:
        """The sources are others now. The address stays, for what is computed of them."""
        self.guards, self._digest, self.owner = (), None, owner

    def adopt(self, tensors: tuple[Tensor, ...], beside: tuple[Tensor, ...] = ()) -> None:
        """Takes tensors that others have computed. They are not current, unless they are here.

        beside: other tensors that the same products read.
        """
        if not _are(self.tensors, tensors):
            self._part(tensors)
            self.forget()
        self.beside = beside

    def drop(self) -> None:
        """Frees the tensors. Those that captured graphs read stay, and are written again later."""
        self.forget()
        if not self.captured:
            self.tensors = ()

    def release_graphs(self) -> None:
        """Frees what is here for captured graphs alone."""
        self.graphs.clear()
        for tensor in self.tensors:
            _is_noted(tensor, forget=True)
        self._captured = False
        if not self.guards:
            self.tensors = ()


def _is_noted(tensor: Tensor, *, forget: bool = False) -> bool:
    """Has the library noted this tensor, as one that a captured graph reads?"""
    return tensor.is_cuda and query.ask("_captured", tensor.data_ptr(), forget)


def have_memory(tensors: Iterable[Tensor]) -> bool:
    """Have all of them memory of their own, as no FakeTensor and no DTensor has?"""
    return {*map(type, tensors)} <= {torch.Tensor, torch.nn.Parameter}


def guards_of(sources: Sequence[Tensor]) -> tuple[TensorGuard, ...]:
    """A guard for each; none if one of them has no memory."""
    return tuple(map(guard_of, sources)) if have_memory(sources) else ()


def _are(own: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Are they the same objects?"""
    return len(own) == len(others) and all(map(operator.is_, own, others))


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def digest(tensors: Iterable[Tensor]) -> Tensor:
    """A number of 64 bits for each tensor, int64. Tensors of one shape whose bytes differ have the
    same number by a chance of about 2**-60."""
    with torch.no_grad():
        return torch.stack([_number(tensor) for tensor in tensors])


def _number(tensor: Tensor) -> Tensor:
    octets = tensor.contiguous().view(-1).view(torch.uint8)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for start in range(0, octets.numel(), _CHUNK):
        part = octets[start : start + _CHUNK]
        part = torch.nn.functional.pad(part, (0, -part.numel() % (8 * _COLUMNS)))
        # A part of other memory may begin at any address.
        aligned = part.clone() if part.data_ptr() % 8 else part
        words = aligned.view(torch.int64).view(-1, _COLUMNS)
        rows = torch.arange(len(words), device=tensor.device) + start // (8 * _COLUMNS)
        columns = torch.arange(_COLUMNS, device=tensor.device)
        total += _mixed(_mixed(words + _mixed(columns)).sum(1) + _mixed(rows)).sum()
    return total


def _mixed(words: Tensor) -> Tensor:
    """A permutation of 64-bit words in which each bit depends on all: the steps of SplitMix64
    (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)."""
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        words = (words ^ (words >> shift & (1 << 64 - shift) - 1)) * factor
    return words ^ (words >> 31 & (1 << 33) - 1)
