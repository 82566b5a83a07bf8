// mma.sync kernels for bf16 operands: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm80/kernel.cuh"

namespace tcgemm::kernels {

const void* sm80_bf16(int row) {
  return find<sm80::Gemm, CpAsyncParams, serves<Arch::sm80, DType::bf16>>(row);
}

}  // namespace tcgemm::kernels
