// mma.sync kernels for f32 operands, rounded to tf32: the rows of the catalog that this file
// compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm80/kernel.cuh"

namespace tcgemm::kernels {

const void* sm80_tf32(int row) {
  return find<sm80::Gemm, CpAsyncParams, serves<Arch::sm80, DType::tf32>>(row);
}

}  // namespace tcgemm::kernels
