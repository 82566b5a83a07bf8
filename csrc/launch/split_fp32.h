// Products of f32 operands in 16-bit parts: passes, the two kernels of which one computes, repair.
// CUDA builds only.
#pragma once

#include "core/problem.h"
#include "launch/gemm.h"

namespace tcgemm::launch {

// A call whose plan has a split.
void launch_split_gemm(const LaunchContext& call);

// Makes the blob of an operand, with room for bf16 parts. Its first word then says which parts it
// holds: kUseBf16 or not. Asynchronous; nothing is allocated.
void prepack(const SplitFp32Pass& pass, void* prepacked, int device, void* stream);

}  // namespace tcgemm::launch
