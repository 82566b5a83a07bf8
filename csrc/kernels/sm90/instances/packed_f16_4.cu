// wgmma kernels: FP16 activations and packed weights of 4 bits.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/packed.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_packed_f16_4>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_packed_f16_4, sm90::Gemm, sm90::PackedMainloop, TmaParams>(config_index,
                                                                                       path);
}

}  // namespace tcgemm::kernels
