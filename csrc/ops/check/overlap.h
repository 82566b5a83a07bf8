// Do two strided views share a byte? The test is exact and compares more than first and last bytes:
// the left and the right half of a matrix interleave but share nothing.
#pragma once

#include "ops/tensor.h"

namespace tcgemm::ops {

// True if two different indices of the view reach the same element.
bool overlaps_itself(const View& view);

bool share_memory(const View& first, const View& second);

}  // namespace tcgemm::ops
