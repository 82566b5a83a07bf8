// Tensor maps for TMA: matrices in batches as rank-3 tensors {inner, outer, batch}, with the
// swizzle of the box's lines: 128 or 64 bytes.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/problem.h"

namespace tcgemm::launch {

// One matrix per batch in lines of `inner` neighbouring elements; the box is what one copy moves.
struct TensorMapDesc {
  std::uintptr_t address;
  DType dtype;
  std::int64_t inner, outer, batch;  // elements, lines, matrices
  std::int64_t pitch, batch_pitch;   // elements; batch_pitch 0: one matrix serves every batch
  int box_inner, box_outer;
  bool ahead = true;  // L2 fetches 256 bytes of a line for the box's 128 or 64
};

// Throws std::runtime_error where the driver refuses the map.
TensorMap tensor_map(const TensorMapDesc& lines);

// Of one matrix whose lines come in sixteens, each as 0, 2, 4 .. 1, 3, 5 ..: {inner, 8, 2, outer /
// 16} (ptx::tma_load_interleaved). The last sixteen are read whole.
TensorMap interleaved_map(const TensorMapDesc& lines);

}  // namespace tcgemm::launch
