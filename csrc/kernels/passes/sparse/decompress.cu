// Selects the kernels that decompress and gather elements of 1, 2 and 4 bytes.
#include "kernels/passes/sparse/decompress.cuh"

#include <algorithm>

#include "kernels/kernels.h"
#include "kernels/passes/sparse/gather.cuh"

namespace tcgemm::kernels {
namespace {

template <int kSize, Pattern kPattern = Pattern::two_of_four>
struct KernelPair {
  static constexpr auto kDecompress = &sparse::decompress<kSize, kPattern>;
  static constexpr auto kGather = &sparse::gather<kSize, kPattern>;
};

// Returns f(kernels for elements of this type).
template <class F>
const void* select_kernel(DType type, Pattern pattern, F f) {
  if (bytes(type) == 1) return f(KernelPair<1>{});
  if (bytes(type) == 2) return f(KernelPair<2>{});
  if (pattern == Pattern::one_of_two) return f(KernelPair<4, Pattern::one_of_two>{});
  return f(KernelPair<4>{});
}

}  // namespace

const void* decompress(const DecompressParams& params, Pattern pattern) {
  return select_kernel(params.values.dtype, pattern,
                       [](auto pair) { return reinterpret_cast<const void*>(pair.kDecompress); });
}

const void* gather(const GatherParams& params, Pattern pattern) {
  return select_kernel(params.w.source.dtype, pattern,
                       [](auto pair) { return reinterpret_cast<const void*>(pair.kGather); });
}

int decompress_blocks(const DecompressParams& params) {
  const auto grid = sparse::decompress_grid(params, bytes(params.values.dtype));
  return static_cast<int>(std::min(grid.tiles(), 2147483647u));
}

}  // namespace tcgemm::kernels
