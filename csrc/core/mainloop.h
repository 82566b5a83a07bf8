// The mainloops of the kernels.
#pragma once

#include <cstdint>

namespace tcgemm {

// How a kernel multiplies the operands of a tile. Each one is a header of sm90/, sm80/, gemv/ or
// thin/, which instances.cu of the folders sm90 and sm80 names.
enum class Mainloop : std::uint8_t {
  dense,         // both operands from shared memory (SS: this and RS are the names of CUTLASS)
  rs,            // A from registers (RS), transposed on the way
  promoted,      // FP8: the sums of a k-block are added to a second set of accumulators
  block_scaled,  // the same, each sum scaled before it is added
  sparse,        // A has 2:4 sparsity along k: core/sparse.h
  split_fp32,    // FP32 operands as 16-bit terms: core/split_fp32.h
  tf32x2,        // FP32 operands as two TF32 terms, which the kernel makes of them
  packed,        // A is a packed weight, decoded in registers
  packed_mma,    // the same with mma.sync in place of wgmma, for few rows
  fp64,          // FP64, or FP32 accumulated as FP64
  gemv,          // mma.sync for tiles of few rows, whose warps divide k
  packed_gemv,   // the same where B is a packed weight
  thin,          // mma.sync for many rows, few columns and a short k
};

constexpr const char* name(Mainloop mainloop) {
  constexpr const char* names[] = {
      "dense",  "rs",         "promoted", "block_scaled", "sparse",      "split_fp32", "tf32x2",
      "packed", "packed_mma", "fp64",     "gemv",         "packed_gemv", "thin"};
  return names[static_cast<int>(mainloop)];
}

}  // namespace tcgemm
