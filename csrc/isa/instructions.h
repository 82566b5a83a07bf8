// Which tensor-core instructions the kernels use (PTX ISA 9.1: 9.7.14.5.14 mma, 9.7.15.5 wgmma).
#pragma once

#include "isa/instruction.h"

namespace tcgemm::isa {

inline constexpr Instruction kInstructions[] = {
    {Family::mma, Arch::sm80, DType::f16, DType::f32, 16, 8, 16, 8, true},
    {Family::mma, Arch::sm80, DType::bf16, DType::f32, 16, 8, 16, 8, true},
    {Family::mma, Arch::sm80, DType::f16, DType::f16, 16, 8, 16, 8, true},
    {Family::wgmma, Arch::sm90a, DType::f16, DType::f32, 64, 256, 16, 8, true},
    {Family::wgmma, Arch::sm90a, DType::bf16, DType::f32, 64, 256, 16, 8, true},
    {Family::wgmma, Arch::sm90a, DType::f16, DType::f16, 64, 256, 16, 8, true},
};

// The row, or a null pointer where the hardware has no such instruction.
constexpr const Instruction* find(Family family, DType input, DType accumulator) {
  for (const Instruction& row : kInstructions)
    if (row.family == family && row.input == input && row.accumulator == accumulator) return &row;
  return nullptr;
}

}  // namespace tcgemm::isa
