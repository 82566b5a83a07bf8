// wgmma kernels: b1 operands.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/dense.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_binary>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_binary, sm90::Gemm, sm90::DenseMainloop, TmaParams>(config_index, path);
}

}  // namespace tcgemm::kernels
