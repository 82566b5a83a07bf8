// wgmma kernels: E4M3 operands, fused.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/dense.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_fp8_fused>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_fp8_fused, sm90::Gemm, sm90::DenseMainloop, TmaParams>(config_index,
                                                                                   path);
}

}  // namespace tcgemm::kernels
