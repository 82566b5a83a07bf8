// Selects the kernel that adds the partial sums of slices of k.
#include "kernels/passes/add_slices.cuh"

#include <algorithm>

#include "core/integer.h"
#include "kernels/kernels.h"

namespace tcgemm::kernels {

const void* add_slices(DType sums, bool f64_result) {
  if (sums == DType::s32)
    return reinterpret_cast<const void*>(&passes::add_slices<std::int32_t, std::int32_t>);
  if (sums == DType::f32) return reinterpret_cast<const void*>(&passes::add_slices<float, float>);
  return f64_result ? reinterpret_cast<const void*>(&passes::add_slices<double, double>)
                    : reinterpret_cast<const void*>(&passes::add_slices<double, float>);
}

void partition_add_slices(AddSlicesParams& params) {
  params.warps_per_block = 1;
  while (params.warps_per_block * kSlicesOfWarp < params.slices) params.warps_per_block *= 2;
}

int add_slices_blocks(const AddSlicesParams& params) {
  const std::int64_t blocks = ceil_div(params.extent.m, kBoxRows) *
                              ceil_div(params.extent.n, kSumColumns) * params.extent.batch;
  const std::int64_t at_once = passes::kAddSlicesWarps / params.warps_per_block;
  return static_cast<int>(std::min<std::int64_t>(ceil_div(blocks, at_once), 1 << 20));
}

}  // namespace tcgemm::kernels
