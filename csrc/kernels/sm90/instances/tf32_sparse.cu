// wgmma.sp kernels: FP32 operands that the tensor cores read as TF32, A with 2:4 sparsity.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/sparse.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_tf32_sparse>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_tf32_sparse, sm90::Gemm, sm90::SparseMainloop, TmaParams>(config_index,
                                                                                      path);
}

}  // namespace tcgemm::kernels
