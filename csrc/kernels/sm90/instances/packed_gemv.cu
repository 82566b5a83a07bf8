// mma.sync kernels for few rows, the weight packed in 4 or 8 bits.
#include "kernels/entry.cuh"
#include "kernels/gemv/kernel.cuh"
#include "kernels/gemv/packed.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_packed_gemv>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_packed_gemv, gemv::Gemv, gemv::PackedGemvMainloop, CpAsyncParams>(
      config_index, path);
}

}  // namespace tcgemm::kernels
