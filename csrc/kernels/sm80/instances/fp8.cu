// mma.sync kernels for e4m3 and e5m2 operands in any mix: the rows of the catalog that this file
// compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm80/kernel.cuh"

namespace tcgemm::kernels {

namespace {

constexpr bool serves_fp8(const GemmConfig& config) { return config.arch == Arch::sm89; }

}  // namespace

const void* sm80_fp8(int row) { return find<sm80::Gemm, CpAsyncParams, serves_fp8>(row); }

}  // namespace tcgemm::kernels
