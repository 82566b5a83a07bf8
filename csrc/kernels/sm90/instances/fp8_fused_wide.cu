// wgmma kernels: E4M3 operands, fused, wide tiles.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/dense.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_fp8_fused_wide>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_fp8_fused_wide, sm90::Gemm, sm90::DenseMainloop, TmaParams>(
      config_index, path);
}

}  // namespace tcgemm::kernels
