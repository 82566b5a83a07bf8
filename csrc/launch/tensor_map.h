// Tensor maps for TMA: a batch of matrices is a rank-3 tensor {inner, outer, batch}. The swizzle
// mode is as wide as a row of the box: 128 or 64 bytes.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/problem.h"

namespace tcgemm::launch {

// One matrix per batch, with `inner` contiguous elements a row. One TMA copy moves one box.
struct TensorMapDesc {
  std::uintptr_t address;
  DType dtype;
  std::int64_t inner, outer, batch;  // contiguous elements, rows, matrices
  std::int64_t pitch, batch_pitch;   // elements; batch_pitch 0: the matrix is broadcast
  int box_inner, box_outer;
  int l2_promotion = 256;  // bytes: 64, 128 or 256
};

// Throws std::runtime_error if the driver rejects the map.
TensorMap tensor_map(const TensorMapDesc& desc);

// The map of one matrix that is loaded in groups of 16 rows, first the even and then the odd rows
// of a group: a rank-4 tensor {inner, 8, 2, outer / 16} (ptx::tma_load_interleaved). The last group
// is always read as 16 rows.
TensorMap interleaved_map(const TensorMapDesc& desc);

}  // namespace tcgemm::launch
