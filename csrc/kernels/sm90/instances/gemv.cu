// mma.sync kernels for few rows, of every dtype.
#include "kernels/entry.cuh"
#include "kernels/gemv/kernel.cuh"
#include "kernels/gemv/mainloop.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_gemv>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_gemv, gemv::Gemv, gemv::GemvMainloop, CpAsyncParams>(config_index,
                                                                                 path);
}

}  // namespace tcgemm::kernels
