// wgmma kernels: FP16 operands and accumulators.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/dense.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_f16_f16>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_f16_f16, sm90::Gemm, sm90::DenseMainloop, TmaParams>(config_index,
                                                                                 path);
}

}  // namespace tcgemm::kernels
