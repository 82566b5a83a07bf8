// mma.sync kernels for f16 operands: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm80/kernel.cuh"

namespace tcgemm::kernels {

const void* sm80_f16(int row) {
  return find<sm80::Gemm, CpAsyncParams, serves<Arch::sm80, DType::f16>>(row);
}

}  // namespace tcgemm::kernels
