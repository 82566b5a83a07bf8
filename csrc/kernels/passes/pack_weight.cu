// Selects the kernel that packs a weight of f16, bf16 or f32.
#include "kernels/passes/pack_weight.cuh"

#include <algorithm>

#include "core/integer.h"

namespace tcgemm::kernels {
namespace {

template <DType kType, bool kCached>
const void* select_method(const PackWeightParams& params) {
  return params.rules.least_error
             ? reinterpret_cast<const void*>(&passes::pack_groups<kType, kCached, true>)
             : reinterpret_cast<const void*>(&passes::pack_groups<kType, kCached, false>);
}

template <DType kType>
const void* select_kernel(const PackWeightParams& params) {
  return params.group <= params.lanes * kPackChunks * kPackElements
             ? select_method<kType, true>(params)
             : select_method<kType, false>(params);
}

}  // namespace

const void* pack_weight(const PackWeightParams& params) {
  switch (params.w.dtype) {
    case DType::f16: return select_kernel<DType::f16>(params);
    case DType::bf16: return select_kernel<DType::bf16>(params);
    default: return select_kernel<DType::f32>(params);
  }
}

int pack_weight_blocks(const PackWeightParams& params) {
  const std::int64_t in_block = kPackWeightThreads / params.lanes;
  return int(
      std::min<std::int64_t>(ceil_div(params.n * params.groups_in_row, in_block), 2147483647));
}

}  // namespace tcgemm::kernels
