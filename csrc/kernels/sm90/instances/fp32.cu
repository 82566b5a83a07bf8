// mma.sync kernels: FP32 operands, multiplied and accumulated as FP64.
#include "kernels/entry.cuh"
#include "kernels/sm90/fp64/kernel.cuh"
#include "kernels/sm90/fp64/mainloop.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_fp32>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_fp32, sm90::Fp64Gemm, sm90::Fp64Mainloop, CpAsyncParams>(config_index,
                                                                                     path);
}

}  // namespace tcgemm::kernels
