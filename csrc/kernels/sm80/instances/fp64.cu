// mma.sync kernels: FP64 operands.
#include "kernels/entry.cuh"
#include "kernels/sm80/fp64/kernel.cuh"
#include "kernels/sm80/fp64/mainloop.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm80_fp64>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm80_fp64, sm80::Fp64Gemm, sm80::Fp64Mainloop, CpAsyncParams>(config_index,
                                                                                     path);
}

}  // namespace tcgemm::kernels
