// mma.sp kernels for tf32 operands: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm80/kernel.cuh"

namespace tcgemm::kernels {

const void* sm80_tf32_sparse(int row) {
  return find<sm80::Gemm, CpAsyncParams, serves<Arch::sm80, DType::tf32, true>>(row);
}

}  // namespace tcgemm::kernels
