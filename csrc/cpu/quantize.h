// Quantises a tensor as core/quantize.h defines it. Divisions are IEEE's and the amax of a group is
// exact, so the bits depend on neither the instruction set nor the number of threads.
#pragma once

#include "core/quantize.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

void quantize(const Quantization& quantization, const Parallel& parallel);
void quantize(const Quantization& quantization, const Parallel& parallel, CpuFeatures features);

}  // namespace tcgemm::cpu
