// mma.sync kernels: 16-bit operands, A a weight packed in 4 or 8 bits.
#include "kernels/entry.cuh"
#include "kernels/sm80/kernel.cuh"
#include "kernels/sm80/mainloop/packed.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm80_packed>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm80_packed, sm80::Gemm, sm80::PackedMainloop, CpAsyncParams>(config_index,
                                                                                     path);
}

}  // namespace tcgemm::kernels
