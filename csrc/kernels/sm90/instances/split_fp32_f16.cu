// wgmma kernels for f32 operands in f16 parts: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {

constexpr bool is_split_fp32(const GemmConfig& config) {
  return config.terms > 1 && config.input == DType::f16;
}

const void* sm90_f16_parts(int row) { return find<sm90::Gemm, TmaParams, is_split_fp32>(row); }

}  // namespace tcgemm::kernels
