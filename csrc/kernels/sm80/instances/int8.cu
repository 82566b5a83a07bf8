// mma.sync kernels for s8 and u8 operands in any mix: the rows of the catalog that this file
// compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm80/kernel.cuh"

namespace tcgemm::kernels {

namespace {

constexpr bool serves_int8(const GemmConfig& config) {
  return config.arch == Arch::sm80 && is_int8(config.input) && !config.sparse;
}

}  // namespace

const void* sm80_int8(int row) { return find<sm80::Gemm, CpAsyncParams, serves_int8>(row); }

}  // namespace tcgemm::kernels
