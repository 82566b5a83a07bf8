// wgmma kernels for f32 operands in 16-bit parts: the rows of the catalog that this file compiles.
#include "kernels/entry.cuh"
#include "kernels/kernels.h"
#include "kernels/sm90/kernel.cuh"

namespace tcgemm::kernels {

constexpr bool in_parts(const Kernel& kernel) { return kernel.parts > 1; }

const void* sm90_parts(int row) { return find<sm90::Gemm, Sm90Params, in_parts>(row); }

}  // namespace tcgemm::kernels
