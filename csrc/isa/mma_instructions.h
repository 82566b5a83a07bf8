// The tensor-core instructions: those of the kernels, and others whose arithmetic is known (PTX ISA
// 9.1: 9.7.14.5.14 mma, 9.7.14.6.3 mma.sp, 9.7.15.5 wgmma, 9.7.15.6 wgmma.sp).
#pragma once

#include "isa/mma_instruction.h"

namespace tcgemm::isa {

using enum DType;

inline constexpr Instruction kInstructions[] = {
    {InstructionKind::mma, Arch::sm80, f16, f16, f32, 16, 8, 16, 8, true},
    {InstructionKind::mma, Arch::sm80, bf16, bf16, f32, 16, 8, 16, 8, true},
    {InstructionKind::mma, Arch::sm80, f16, f16, f16, 16, 8, 16, 8, true},
    {InstructionKind::mma, Arch::sm80, tf32, tf32, f32, 16, 8, 8, 8, false},
    {InstructionKind::mma, Arch::sm80, s8, s8, s32, 16, 8, 32, 8, false},
    {InstructionKind::mma, Arch::sm80, s8, u8, s32, 16, 8, 32, 8, false},
    {InstructionKind::mma, Arch::sm80, u8, s8, s32, 16, 8, 32, 8, false},
    {InstructionKind::mma, Arch::sm80, u8, u8, s32, 16, 8, 32, 8, false},
    {InstructionKind::mma, Arch::sm89, e4m3, e4m3, f32, 16, 8, 32, 8, false},
    {InstructionKind::mma, Arch::sm89, e4m3, e5m2, f32, 16, 8, 32, 8, false},
    {InstructionKind::mma, Arch::sm89, e5m2, e4m3, f32, 16, 8, 32, 8, false},
    {InstructionKind::mma, Arch::sm89, e5m2, e5m2, f32, 16, 8, 32, 8, false},
    {InstructionKind::mma, Arch::sm90a, f64, f64, f64, 16, 8, 16, 8, false},
    {InstructionKind::mma_sparse, Arch::sm80, f16, f16, f32, 16, 8, 32, 8, true},
    {InstructionKind::mma_sparse, Arch::sm80, bf16, bf16, f32, 16, 8, 32, 8, true},
    {InstructionKind::mma_sparse, Arch::sm80, tf32, tf32, f32, 16, 8, 16, 8, false},
    {InstructionKind::mma_sparse, Arch::sm80, s8, s8, s32, 16, 8, 64, 8, false},
    {InstructionKind::mma_sparse, Arch::sm80, s8, u8, s32, 16, 8, 64, 8, false},
    {InstructionKind::mma_sparse, Arch::sm80, u8, s8, s32, 16, 8, 64, 8, false},
    {InstructionKind::mma_sparse, Arch::sm80, u8, u8, s32, 16, 8, 64, 8, false},
    {InstructionKind::wgmma, Arch::sm90a, f16, f16, f32, 64, 256, 16, 8, true},
    {InstructionKind::wgmma, Arch::sm90a, bf16, bf16, f32, 64, 256, 16, 8, true},
    {InstructionKind::wgmma, Arch::sm90a, f16, f16, f16, 64, 256, 16, 8, true},
    {InstructionKind::wgmma, Arch::sm90a, tf32, tf32, f32, 64, 256, 8, 8, false},
    {InstructionKind::wgmma, Arch::sm90a, e4m3, e4m3, f32, 64, 256, 32, 8, false},
    {InstructionKind::wgmma, Arch::sm90a, e4m3, e5m2, f32, 64, 256, 32, 8, false},
    {InstructionKind::wgmma, Arch::sm90a, e5m2, e4m3, f32, 64, 256, 32, 8, false},
    {InstructionKind::wgmma, Arch::sm90a, e5m2, e5m2, f32, 64, 256, 32, 8, false},
    {InstructionKind::wgmma, Arch::sm90a, s8, s8, s32, 64, 256, 32, 16, false},
    {InstructionKind::wgmma, Arch::sm90a, s8, u8, s32, 64, 256, 32, 16, false},
    {InstructionKind::wgmma, Arch::sm90a, u8, s8, s32, 64, 256, 32, 16, false},
    {InstructionKind::wgmma, Arch::sm90a, u8, u8, s32, 64, 256, 32, 16, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, f16, f16, f32, 64, 256, 32, 8, true},
    {InstructionKind::wgmma_sparse, Arch::sm90a, bf16, bf16, f32, 64, 256, 32, 8, true},
    {InstructionKind::wgmma_sparse, Arch::sm90a, tf32, tf32, f32, 64, 256, 16, 8, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, e4m3, e4m3, f32, 64, 256, 64, 8, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, e4m3, e5m2, f32, 64, 256, 64, 8, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, e5m2, e4m3, f32, 64, 256, 64, 8, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, e5m2, e5m2, f32, 64, 256, 64, 8, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, s8, s8, s32, 64, 256, 64, 16, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, s8, u8, s32, 64, 256, 64, 16, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, u8, s8, s32, 64, 256, 64, 16, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, u8, u8, s32, 64, 256, 64, 16, false},
    // No kernel uses these.
    {InstructionKind::mma, Arch::sm80, f16, f16, f32, 8, 8, 4, 8, false, false, 70, 70},
    {InstructionKind::mma, Arch::sm80, f16, f16, f16, 8, 8, 4, 8, false, false, 70, 70},
    {InstructionKind::mma, Arch::sm80, f16, f16, f32, 16, 8, 8, 8, false, false, 75},
    {InstructionKind::mma, Arch::sm80, f16, f16, f16, 16, 8, 8, 8, false, false, 75},
    {InstructionKind::mma, Arch::sm80, bf16, bf16, f32, 16, 8, 8, 8, false, false},
    {InstructionKind::mma, Arch::sm80, tf32, tf32, f32, 16, 8, 4, 8, false, false},
    {InstructionKind::mma, Arch::sm80, f64, f64, f64, 8, 8, 4, 8, false, false},
    {InstructionKind::mma, Arch::sm90a, f64, f64, f64, 16, 8, 4, 8, false, false},
    {InstructionKind::mma, Arch::sm90a, f64, f64, f64, 16, 8, 8, 8, false, false},
    {InstructionKind::mma, Arch::sm80, s8, s8, s32, 8, 8, 16, 8, false, false, 75},
    {InstructionKind::mma, Arch::sm80, s8, u8, s32, 8, 8, 16, 8, false, false, 75},
    {InstructionKind::mma, Arch::sm80, u8, s8, s32, 8, 8, 16, 8, false, false, 75},
    {InstructionKind::mma, Arch::sm80, u8, u8, s32, 8, 8, 16, 8, false, false, 75},
    {InstructionKind::mma, Arch::sm80, s8, s8, s32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm80, s8, u8, s32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm80, u8, s8, s32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm80, u8, u8, s32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e4m3, e4m3, f32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e4m3, e5m2, f32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e5m2, e4m3, f32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e5m2, e5m2, f32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e4m3, e4m3, f16, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e4m3, e5m2, f16, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e5m2, e4m3, f16, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e5m2, e5m2, f16, 16, 8, 16, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e4m3, e4m3, f16, 16, 8, 32, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e4m3, e5m2, f16, 16, 8, 32, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e5m2, e4m3, f16, 16, 8, 32, 8, false, false},
    {InstructionKind::mma, Arch::sm89, e5m2, e5m2, f16, 16, 8, 32, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, f16, f16, f32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, bf16, bf16, f32, 16, 8, 16, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, f16, f16, f16, 16, 8, 16, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, f16, f16, f16, 16, 8, 32, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, tf32, tf32, f32, 16, 8, 8, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, s8, s8, s32, 16, 8, 32, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, s8, u8, s32, 16, 8, 32, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, u8, s8, s32, 16, 8, 32, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm80, u8, u8, s32, 16, 8, 32, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm89, e4m3, e4m3, f32, 16, 8, 64, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm89, e4m3, e5m2, f32, 16, 8, 64, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm89, e5m2, e4m3, f32, 16, 8, 64, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm89, e5m2, e5m2, f32, 16, 8, 64, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm89, e4m3, e4m3, f16, 16, 8, 64, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm89, e4m3, e5m2, f16, 16, 8, 64, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm89, e5m2, e4m3, f16, 16, 8, 64, 8, false, false},
    {InstructionKind::mma_sparse, Arch::sm89, e5m2, e5m2, f16, 16, 8, 64, 8, false, false},
    {InstructionKind::wgmma, Arch::sm90a, e4m3, e4m3, f16, 64, 256, 32, 8, false, false},
    {InstructionKind::wgmma, Arch::sm90a, e4m3, e5m2, f16, 64, 256, 32, 8, false, false},
    {InstructionKind::wgmma, Arch::sm90a, e5m2, e4m3, f16, 64, 256, 32, 8, false, false},
    {InstructionKind::wgmma, Arch::sm90a, e5m2, e5m2, f16, 64, 256, 32, 8, false, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, f16, f16, f16, 64, 256, 32, 8, false, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, e4m3, e4m3, f16, 64, 256, 64, 8, false, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, e4m3, e5m2, f16, 64, 256, 64, 8, false, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, e5m2, e4m3, f16, 64, 256, 64, 8, false, false},
    {InstructionKind::wgmma_sparse, Arch::sm90a, e5m2, e5m2, f16, 64, 256, 64, 8, false, false},
};

// An instruction of the kernels. A null pointer means that the hardware has no such instruction.
constexpr const Instruction* find(InstructionKind kind, DType input, DType input_b,
                                  DType accumulator) {
  for (const Instruction& instruction : kInstructions)
    if (instruction.in_kernels && instruction.kind == kind && instruction.input == input &&
        instruction.input_b == input_b && instruction.accumulator == accumulator)
      return &instruction;
  return nullptr;
}

}  // namespace tcgemm::isa
