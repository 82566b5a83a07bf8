// Quantisation of a tensor: core/quantize.h is the definition. Divisions are IEEE's and a group's
// amax is exact, so the bits depend on neither the instruction set nor the number of threads.
#pragma once

#include "core/quantize.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

void quantize(const Quantization& quantization, const Parallel& parallel);
void quantize(const Quantization& quantization, const Parallel& parallel, Isa isa);

}  // namespace tcgemm::cpu
