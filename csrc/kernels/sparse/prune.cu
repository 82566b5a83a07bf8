// Pruning of all dtypes. Floats of one size compare alike; sums are of numbers.
#include "kernels/sparse/prune.cuh"

#include "kernels/kernels.h"

namespace tcgemm::kernels {
namespace {

template <DType kType, DType kAlike = kType>
const void* choose(bool transposable) {
  return transposable ? reinterpret_cast<const void*>(&sparse::prune_transposable<kType>)
                      : reinterpret_cast<const void*>(&sparse::prune<kAlike, Pattern::two_of_four>);
}

}  // namespace

const void* prune(const PruneParams& params, Pattern pattern, bool transposable) {
  if (pattern == Pattern::one_of_two)
    return reinterpret_cast<const void*>(&sparse::prune<DType::f32, Pattern::one_of_two>);
  switch (params.w.source.dtype) {
    case DType::f16:
      return choose<DType::f16, DType::bf16>(transposable);
    case DType::bf16:
      return choose<DType::bf16>(transposable);
    case DType::e4m3:
      return choose<DType::e4m3>(transposable);
    case DType::e5m2:
      return choose<DType::e5m2, DType::e4m3>(transposable);
    case DType::s8:
      return choose<DType::s8>(transposable);
    case DType::u8:
      return choose<DType::u8>(transposable);
    default:
      return choose<DType::f32>(transposable);
  }
}

}  // namespace tcgemm::kernels
