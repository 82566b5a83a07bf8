// Launches split-FP32 GEMMs. With 16-bit terms: the split passes, the main kernel and its
// alternative (the decision on the GPU lets only one of them compute), and the recompute kernel.
// CUDA builds only.
#pragma once

#include "core/problem.h"
#include "launch/gemm.h"

namespace tcgemm::launch {

// `call.plan` must have a split-FP32 plan.
void launch_split_gemm(const LaunchContext& call);

// Launches the kernel of a plan with TF32 terms, whose operands are repacked, and the one that
// computes tiles again. That one reads `a` and `b` as the caller has them.
void launch_tf32x2(const LaunchContext& call, const Matrix& a, const Matrix& b);

// Prepares an operand into a buffer with room for bf16 terms. The first 32-bit word of the buffer
// then says which terms it has: kUseBf16 is set or not. Asynchronous; allocates nothing.
void prepare(const SplitFp32Pass& pass, void* prepared, int device, void* stream);

}  // namespace tcgemm::launch
