// Products of b1 operands. They are exact, and count ones as BinaryOperation in core/problem.h
// says.
#pragma once

#include "core/problem.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

// Bits after the last one of k, which fill the last byte of a row, are 0.
void binary_gemm(const Problem& problem, const Parallel& parallel);

}  // namespace tcgemm::cpu
