// wgmma kernels for s8 and u8 operands: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {
namespace {

constexpr bool rows(const GemmConfig& config) {
  return config.arch == Arch::sm90a && is_int8(config.input) && !config.sparse;
}

}  // namespace

const void* sm90_int8(int row) { return find<sm90::Gemm, TmaParams, rows>(row); }

}  // namespace tcgemm::kernels
