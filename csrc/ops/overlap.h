// Do two strided views touch the same byte? Exactly, not only by their first and last bytes: the
// left and the right half of a matrix interleave without sharing anything.
#pragma once

#include "ops/tensor.h"

namespace tcgemm::ops {

// Some element of the view is reached by two different indices.
bool overlaps_itself(const View& view);

bool share_memory(const View& one, const View& other);

}  // namespace tcgemm::ops
