// mma.sync kernels: b1 operands.
#include "kernels/entry.cuh"
#include "kernels/sm80/kernel.cuh"
#include "kernels/sm80/mainloop/cp_async.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm80_binary>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm80_binary, sm80::Gemm, sm80::CpAsyncMainloop, CpAsyncParams>(config_index,
                                                                                      path);
}

}  // namespace tcgemm::kernels
