// The doors to the compiled kernels: what launch/ may know of them.
#pragma once

#include "core/params.h"

namespace tcgemm::kernels {

// The __global__ function of a catalog row, for cudaLaunchKernelExC; nullptr where it was not
// built. One function a folder and dtype, each in the .cu file that compiles its rows.
const void* sm90_bf16(int row);
const void* sm90_f16(int row);
const void* sm80_bf16(int row);
const void* sm80_f16(int row);

// rows x k with any strides -> K-major with a pitch (PrepareParams), for elements of 2 bytes.
const void* prepare();

inline constexpr int kPrepareThreads = 256;

// Blocks for a prepare pass: it walks its tiles with the stride of the grid, so any number is
// right.
int prepare_blocks(const PrepareParams& params);

}  // namespace tcgemm::kernels
