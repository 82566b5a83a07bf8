"""The random choices of a case of fuzz.py: sizes, numbers, and tensors of every kind."""

import random

import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
INT8 = (torch.int8, torch.uint8)
OTHERS = (
    torch.int64,
    torch.int32,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fnuz,
    torch.uint16,
)
SIZES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 140)


class Fuzzer:
    """The random choices of one case."""

    def __init__(self, kind: str, seed: int, number: int):
        self.number = number
        self.random = random.Random(f"{kind} {seed} {number}")
        torch.manual_seed(self.random.randrange(2**32))

    def pick(self, choices):
        return self.random.choice(choices)

    def rarely(self, one_in: int = 8) -> bool:
        return self.random.randrange(one_in) == 0

    def number(self) -> float:
        special = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e300, float("inf"), float("nan"))
        return self.pick(special) if self.rarely(2) else self.random.uniform(-4, 4)

    def integer(self) -> int:
        special = (-1, 2**31, 2**40, 2**62, -(2**63), 2**63 - 1)
        return self.pick(special) if self.rarely() else self.pick(SIZES)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.pick(SIZES[:14]) for _ in range(self.pick((0, 1, 1, 2, 2, 2, 3, 4))))

    def values(self, shape, dtype) -> torch.Tensor:
        if dtype in (torch.bool, torch.uint16):
            return torch.zeros(shape, dtype=dtype)
        if dtype.is_complex:
            return torch.randn(shape, dtype=dtype)
        if dtype.is_floating_point:
            return torch.randn(shape).to(dtype)
        return torch.randint(0, 255, shape, dtype=torch.int64).to(dtype)

    def tensor(self, shape=None, dtype=None) -> torch.Tensor:
        """A tensor of this shape in strides of every kind, sometimes of another shape or dtype."""
        if shape is None or self.rarely(20):
            shape = self.shape()
        if dtype is None or self.rarely(20):
            dtype = self.pick(FLOATS + FP8 + INT8 + OTHERS)
        way = self.random.randrange(16)
        if way == 0:
            return self.values(shape, dtype).to("meta")
        if way == 1 and len(shape) > 1:
            return self.values((*shape[:-2], shape[-1], shape[-2]), dtype).mT
        if way == 2 and shape:
            return self.values((*shape[:-1], 2 * shape[-1] + 1), dtype)[..., 1::2]
        if way == 3:
            return self.values((1,) * len(shape), dtype).expand(shape)
        if way == 4 and shape:
            return self.values((*shape[:-1], shape[-1] + 3), dtype)[..., 3:]
        if way == 5:
            strides = tuple(self.pick((0, 1, 2, 5)) for _ in shape)
            whole = sum(s * max(n - 1, 0) for s, n in zip(strides, shape, strict=True)) + 1
            return self.values((whole,), dtype).as_strided(shape, strides)
        if way == 6:
            return self.odd_tensor(shape)
        tensor = self.values(shape, dtype)
        if way == 7 and dtype.is_floating_point and dtype not in FP8:
            tensor.requires_grad_()
        return tensor

    def odd_tensor(self, shape) -> torch.Tensor:
        """Tensors that are no plain memory."""
        way = self.random.randrange(8)
        if way == 0:
            return torch.randn(shape, dtype=torch.complex64).conj().imag  # the negative bit
        if way >= 6:  # the storage ends before the tensor does
            tensor = torch.randn(shape)
            tensor.untyped_storage().resize_(self.pick((0, tensor.nbytes // 2)))
            return tensor
        if way == 1:
            return torch._efficientzerotensor(shape)
        if way == 2:
            return torch.randn(shape).to_sparse()
        if way == 3:
            return torch.nn.Parameter(torch.randn(shape))
        if way == 4:
            return torch.randn(shape, dtype=torch.complex64).conj()
        with torch.inference_mode():
            return torch.randn(shape)
