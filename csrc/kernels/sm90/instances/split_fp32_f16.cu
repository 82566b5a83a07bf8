// wgmma kernels for f32 operands in f16 parts: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {

constexpr bool in_parts(const Kernel& kernel) {
  return kernel.parts > 1 && kernel.input == DType::f16;
}

const void* sm90_f16_parts(int row) { return find<sm90::Gemm, Sm90Params, in_parts>(row); }

}  // namespace tcgemm::kernels
