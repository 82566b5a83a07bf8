// Selects the repack kernel: elements of 1, 2, 4 or 8 bytes, f32 converted to bf16, or s4 and u4
// converted to s8.
#include "kernels/passes/repack.cuh"

#include <algorithm>

#include "kernels/kernels.h"

namespace tcgemm::kernels {

const void* repack(const RepackParams& params) {
  using passes::repack;
  const CopyParams& copy = params.copies[0];
  if (is_subbyte(copy.source.dtype))
    return copy.to == DType::s8 ? reinterpret_cast<const void*>(&repack<1, 2>)
                                : reinterpret_cast<const void*>(&repack<1, 1>);
  if (bytes(copy.to) != bytes(copy.source.dtype))
    return reinterpret_cast<const void*>(&repack<4, 2>);
  switch (bytes(copy.to)) {
    case 1: return reinterpret_cast<const void*>(&repack<1, 1>);
    case 2: return reinterpret_cast<const void*>(&repack<2, 2>);
    case 4: return reinterpret_cast<const void*>(&repack<4, 4>);
    default: return reinterpret_cast<const void*>(&repack<8, 8>);
  }
}

int repack_blocks(const RepackParams& params) {
  const int size = static_cast<int>(bytes_of(1, params.copies[0].source.dtype));
  return static_cast<int>(std::min<std::int64_t>(passes::tile_count(params, size), 2147483647));
}

}  // namespace tcgemm::kernels
