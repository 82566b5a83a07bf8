// Products of f32 operands in 16-bit parts: passes, the two kernels of which one computes, repair.
// CUDA builds only.
#pragma once

#include "core/problem.h"
#include "launch/gemm.h"

namespace tcgemm::launch {

// A call whose plan has a split.
void product_of_parts(const Call& call);

// Makes the blob of an operand, with room for bf16 parts. Its first word then says which parts it
// holds: kVerdictBf16 or not. Asynchronous; nothing is allocated.
void make_blob(const SplitPass& pass, void* blob, int device, void* stream);

}  // namespace tcgemm::launch
