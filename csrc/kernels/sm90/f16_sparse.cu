// wgmma.sp kernels for f16 operands: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {
namespace {

constexpr bool rows(const Kernel& kernel) { return kernel.sparse && kernel.input == DType::f16; }

}  // namespace

const void* sm90_f16_sparse(int row) { return find<sm90::Gemm, Sm90Params, rows>(row); }

}  // namespace tcgemm::kernels
