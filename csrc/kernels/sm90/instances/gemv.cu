// mma.sync kernels for few rows, of every dtype.
#include "kernels/entry.cuh"
#include "kernels/sm90/gemv/kernel.cuh"
#include "kernels/sm90/gemv/mainloop.cuh"

namespace tcgemm::kernels {

template <>
const void* find<Unit::sm90_gemv>(int config_index, EpiloguePath path) {
  return find_in<Unit::sm90_gemv, sm90::Gemv, sm90::GemvMainloop, CpAsyncParams>(config_index,
                                                                                 path);
}

}  // namespace tcgemm::kernels
