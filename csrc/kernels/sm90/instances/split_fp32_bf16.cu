// wgmma kernels: FP32 operands as three BF16 terms.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/split_fp32.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_split_fp32_bf16>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_split_fp32_bf16, sm90::Gemm, sm90::SplitFp32Mainloop, TmaParams>(
      config_index, path);
}

}  // namespace tcgemm::kernels
