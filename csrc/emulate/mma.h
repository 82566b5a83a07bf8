// Products of matrices by chains of one tensor-core instruction along k.
#pragma once

#include <cstdint>

#include "emulate/models.h"

namespace tcgemm::emulate {

// All matrices are contiguous. `a` holds the stored elements; with `columns`, which is as large as
// a, element i of a row is multiplied by row columns[i] of b. tf32 has the bits of f32.
struct Mma {
  Arithmetic arithmetic;
  DType input_a, input_b, accumulator;
  std::int32_t step;       // stored elements of a along k in one instruction
  std::int32_t saturates;  // s32: each instruction clamps its result
  std::int32_t threads;
  std::int64_t batch, m, n;
  std::int64_t k;    // columns of a
  std::int64_t k_b;  // columns of b: k, unless there is `columns`
  const void* a;     // batch x m x k
  const void* b;     // batch x n x k_b
  const void* c;     // batch x m x n; null: zeros
  void* d;           // batch x m x n
  const std::int32_t* columns;
  // Floats: chains of so many stored elements begin with zero, and FP32 additions outside of the
  // tensor cores promote their sums. 0: one chain.
  std::int64_t promoted;
  // A value for each row (column) and promoted chain, or null. A sum is multiplied by the product
  // of both in the FMA that adds it.
  const float* factors_a;  // batch x m x chains
  const float* factors_b;  // batch x n x chains
};

void multiply(const Mma& mma);

}  // namespace tcgemm::emulate
