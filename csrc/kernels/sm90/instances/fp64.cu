// mma.sync kernels: FP64 operands.
#include "kernels/entry.cuh"
#include "kernels/sm90/fp64/kernel.cuh"
#include "kernels/sm90/fp64/mainloop.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_fp64>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_fp64, sm90::Fp64Gemm, sm90::Fp64Mainloop, CpAsyncParams>(config_index,
                                                                                     path);
}

}  // namespace tcgemm::kernels
