// The backward of an activation and of a bias, as core/activation_backward.h defines it.
#pragma once

#include "core/activation_backward.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

// Sums over the rows of a block, then over blocks of 256 rows, in f32. The bits depend on neither
// the instruction set nor the number of threads.
void activation_backward(const ActivationBackward& task, const Parallel& parallel);
void activation_backward(const ActivationBackward& task, const Parallel& parallel,
                         CpuFeatures features);

}  // namespace tcgemm::cpu
