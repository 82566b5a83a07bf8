// mma.sync kernels for up to 64 rows: operands by TMA, the weight packed in 4 or 8 bits.
#include "kernels/entry.cuh"
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/packed_mma.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_packed_mma>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_packed_mma, sm90::Gemm, sm90::PackedMmaMainloop, TmaParams>(
      config_index, path);
}

}  // namespace tcgemm::kernels
