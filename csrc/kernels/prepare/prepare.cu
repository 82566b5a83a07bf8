// The prepare pass for 2-byte elements.
#include "kernels/prepare/prepare.cuh"

#include <algorithm>

#include "kernels/kernels.h"

namespace tcgemm::kernels {

static_assert(kPrepareThreads == tcgemm::prepare::kThreads);

const void* prepare() { return reinterpret_cast<const void*>(&tcgemm::prepare::repack); }

int prepare_blocks(const PrepareParams& params) {
  return static_cast<int>(std::min<std::int64_t>(tcgemm::prepare::tiles(params), 2147483647));
}

}  // namespace tcgemm::kernels
