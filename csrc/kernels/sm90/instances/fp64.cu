// f64 kernels of sm_90a: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/fp64/kernel.cuh"

namespace tcgemm::kernels {

const void* sm90_f64(int row) {
  return find<sm90::Fp64Gemm, CpAsyncParams, serves<Arch::sm90a, DType::f64>>(row);
}

}  // namespace tcgemm::kernels
