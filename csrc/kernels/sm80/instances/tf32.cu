// mma.sync kernels: FP32 operands that the tensor cores read as TF32.
#include "kernels/entry.cuh"
#include "kernels/sm80/kernel.cuh"
#include "kernels/sm80/mainloop/cp_async.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm80_tf32>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm80_tf32, sm80::Gemm, sm80::CpAsyncMainloop, CpAsyncParams>(config_index,
                                                                                    path);
}

}  // namespace tcgemm::kernels
