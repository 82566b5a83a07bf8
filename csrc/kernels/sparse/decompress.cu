// Decompression of elements of 1, 2 and 4 bytes.
#include "kernels/sparse/decompress.cuh"

#include <algorithm>

#include "kernels/kernels.h"

namespace tcgemm::kernels {

const void* decompress(const DecompressParams& params, Pattern pattern) {
  constexpr Pattern kFour = Pattern::two_of_four;
  switch (bytes(params.values.dtype)) {
    case 1:
      return reinterpret_cast<const void*>(&sparse::decompress<1, kFour>);
    case 2:
      return reinterpret_cast<const void*>(&sparse::decompress<2, kFour>);
    default:
      return pattern == kFour
                 ? reinterpret_cast<const void*>(&sparse::decompress<4, kFour>)
                 : reinterpret_cast<const void*>(&sparse::decompress<4, Pattern::one_of_two>);
  }
}

int decompress_blocks(const DecompressParams& params) {
  const auto grid = sparse::decompress_grid(params, bytes(params.values.dtype));
  return static_cast<int>(std::min(grid.tiles(), 2147483647u));
}

}  // namespace tcgemm::kernels
