// The matrix that a packed weight stands for. The definition: kernels that decode it are compared
// with products of this matrix.
#pragma once

#include <cstdint>

#include "core/packed_weight.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

struct Unpacking {
  PackedLayout layout;
  std::uintptr_t packed;
  DType to;                  // f16 or bf16
  std::int64_t first, rows;  // of the weight; first is a multiple of PackedLayout::kRows
  void* out;                 // rows x k, contiguous
};

// Each element is (code - point) * scale + offset, as core/packed_weight.h says, in f32 with a
// rounding after each operation, and then rounded to the result.
void unpack(const Unpacking& unpacking, const Parallel& parallel);

}  // namespace tcgemm::cpu
