// wgmma kernels for f16 operands: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {

const void* sm90_f16(int row) {
  return find<sm90::Gemm, TmaParams, serves<Arch::sm90a, DType::f16>>(row);
}

}  // namespace tcgemm::kernels
