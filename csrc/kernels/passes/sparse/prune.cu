// Selects the pruning kernels. Floats of one size compare alike; transposable pruning adds up
// numbers.
#include "kernels/passes/sparse/prune.cuh"

#include "kernels/kernels.h"

namespace tcgemm::kernels {
namespace {

template <DType kType, DType kCompareType = kType>
const void* select_kernel(bool transposable) {
  return transposable
             ? reinterpret_cast<const void*>(&sparse::prune_transposable<kType>)
             : reinterpret_cast<const void*>(&sparse::prune<kCompareType, Pattern::two_of_four>);
}

}  // namespace

const void* prune(const PruneParams& params, Pattern pattern, bool transposable) {
  static_assert(are_all({DType::e4m3, DType::e5m2}, is_fp8));
  if (pattern == Pattern::one_of_two)
    return reinterpret_cast<const void*>(&sparse::prune<DType::f32, Pattern::one_of_two>);
  switch (params.w.source.dtype) {
    case DType::f16: return select_kernel<DType::f16, DType::bf16>(transposable);
    case DType::bf16: return select_kernel<DType::bf16>(transposable);
    case DType::e4m3: return select_kernel<DType::e4m3>(transposable);
    case DType::e5m2: return select_kernel<DType::e5m2, DType::e4m3>(transposable);
    case DType::s8: return select_kernel<DType::s8>(transposable);
    case DType::u8: return select_kernel<DType::u8>(transposable);
    default: return select_kernel<DType::f32>(transposable);
  }
}

}  // namespace tcgemm::kernels
