// mma.sync kernels for s8 and u8 operands in any mix: the rows of the catalog that this file
// compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm80/kernel.cuh"

namespace tcgemm::kernels {

namespace {

constexpr bool serves_int8(const Kernel& kernel) {
  return kernel.arch == Arch::sm80 && is_int8(kernel.input) && !kernel.sparse;
}

}  // namespace

const void* sm80_int8(int row) { return find<sm80::Gemm, Sm80Params, serves_int8>(row); }

}  // namespace tcgemm::kernels
