// wgmma.sp kernels: e4m3 and e5m2 operands, A with 2:4 sparsity.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/sparse.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_fp8_sparse>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_fp8_sparse, sm90::Gemm, sm90::SparseMainloop, TmaParams>(config_index,
                                                                                     path);
}

}  // namespace tcgemm::kernels
