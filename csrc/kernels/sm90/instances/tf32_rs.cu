// wgmma kernels: FP32 operands that the tensor cores read as TF32, A from registers (RS).
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/rs.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_tf32_rs>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_tf32_rs, sm90::Gemm, sm90::RsMainloop, TmaParams>(config_index, path);
}

}  // namespace tcgemm::kernels
