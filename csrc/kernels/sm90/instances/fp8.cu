// wgmma kernels for e4m3 and e5m2 operands that accumulate fast: the rows of the catalog that this
// file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {
namespace {

constexpr bool rows(const GemmConfig& config) {
  return config.arch == Arch::sm90a && is_fp8(config.input) && !config.promotes() && !config.sparse;
}

}  // namespace

const void* sm90_fp8(int row) { return find<sm90::Gemm, TmaParams, rows>(row); }

}  // namespace tcgemm::kernels
