// Gathering of elements of 1, 2 and 4 bytes.
#include "kernels/sparse/gather.cuh"

#include "kernels/kernels.h"

namespace tcgemm::kernels {

const void* gather(const GatherParams& params, Pattern pattern) {
  constexpr Pattern kFour = Pattern::two_of_four;
  switch (bytes(params.w.source.dtype)) {
    case 1:
      return reinterpret_cast<const void*>(&sparse::gather<1, kFour>);
    case 2:
      return reinterpret_cast<const void*>(&sparse::gather<2, kFour>);
    default:
      return pattern == kFour
                 ? reinterpret_cast<const void*>(&sparse::gather<4, kFour>)
                 : reinterpret_cast<const void*>(&sparse::gather<4, Pattern::one_of_two>);
  }
}

}  // namespace tcgemm::kernels
