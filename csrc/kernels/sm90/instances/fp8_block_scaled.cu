// wgmma kernels: FP8 operands with scales of blocks.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/promoted.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_fp8_block_scaled>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_fp8_block_scaled, sm90::Gemm, sm90::PromotedMainloop, TmaParams>(
      config_index, path);
}

}  // namespace tcgemm::kernels
