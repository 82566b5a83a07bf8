// Selects the compression kernels. Floats of one size compare alike, so they share one.
#include "kernels/passes/sparse/compress.cuh"

#include <algorithm>

#include "kernels/kernels.h"

namespace tcgemm::kernels {
namespace {

template <DType kType, Pattern kPattern = Pattern::two_of_four>
const void* select_kernel(bool prune) {
  return prune ? reinterpret_cast<const void*>(&sparse::compress<kType, kPattern, true>)
               : reinterpret_cast<const void*>(&sparse::compress<kType, kPattern, false>);
}

}  // namespace

static_assert(passes::kKMajorRows * passes::kKMajorRowBytes ==
              passes::kMnMajorDepth * passes::kMnMajorColumnBytes);

const void* compress(const CompressParams& params, Pattern pattern, bool prune) {
  static_assert(are_all({DType::e4m3, DType::e5m2}, is_fp8));
  switch (params.w.source.dtype) {
    case DType::f16:
    case DType::bf16: return select_kernel<DType::bf16>(prune);
    case DType::e4m3:
    case DType::e5m2: return select_kernel<DType::e4m3>(prune);
    case DType::s8: return select_kernel<DType::s8>(prune);
    case DType::u8: return select_kernel<DType::u8>(prune);
    default:
      return pattern == Pattern::two_of_four
                 ? select_kernel<DType::f32>(prune)
                 : select_kernel<DType::f32, Pattern::one_of_two>(prune);
  }
}

int sparse_blocks(const CopyParams& w) {
  const int size = bytes(w.source.dtype);
  return static_cast<int>(std::min<std::int64_t>(passes::tile_count(w, size), 2147483647));
}

}  // namespace tcgemm::kernels
