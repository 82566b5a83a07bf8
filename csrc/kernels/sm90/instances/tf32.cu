// wgmma kernels for f32 operands as tf32: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {

const void* sm90_tf32(int row) {
  return find<sm90::Gemm, TmaParams, serves<Arch::sm90a, DType::tf32>>(row);
}

}  // namespace tcgemm::kernels
