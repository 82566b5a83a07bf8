// wgmma.sp kernels for tf32 operands: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {

const void* sm90_tf32_sparse(int row) {
  return find<sm90::Gemm, TmaParams, serves<Arch::sm90a, DType::tf32, true>>(row);
}

}  // namespace tcgemm::kernels
