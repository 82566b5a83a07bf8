// mma.sync kernels: s4 and u4 operands.
#include "kernels/entry.cuh"
#include "kernels/sm80/kernel.cuh"
#include "kernels/sm80/mainloop/cp_async.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm80_int4>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm80_int4, sm80::Gemm, sm80::CpAsyncMainloop, CpAsyncParams>(config_index,
                                                                                    path);
}

}  // namespace tcgemm::kernels
