// mma.sp kernels for s8 and u8 operands in any mix: the rows of the catalog that this file
// compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm80/kernel.cuh"

namespace tcgemm::kernels {
namespace {

constexpr bool rows(const GemmConfig& config) {
  return config.arch == Arch::sm80 && config.sparse && is_int8(config.input);
}

}  // namespace

const void* sm80_int8_sparse(int row) { return find<sm80::Gemm, CpAsyncParams, rows>(row); }

}  // namespace tcgemm::kernels
