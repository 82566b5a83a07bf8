// wgmma kernels: BF16 operands, NT.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/dense.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_bf16_nt>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_bf16_nt, sm90::Gemm, sm90::DenseMainloop, TmaParams>(config_index,
                                                                                 path);
}

}  // namespace tcgemm::kernels
