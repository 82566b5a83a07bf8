// mma.sp.m16n8, one warp, all operands in registers (PTX ISA 9.7.14.6). a is sparse along k
// (core/sparse.h). Positions in the metadata are ascending, as sp::ordered_metadata requires.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tcgemm::ptx {

// a has the values, in the registers of mma_sync.cuh. b has twice as many registers, for two
// dense k-steps. A register holds e = 32 / bits consecutive elements along k; an instruction has
// k = 16 e; lane = 4 * g + t:
//   b_low[0] column g, k = e t              b_high[0] column g, k = e t + 8 e
//   b_low[1] column g, k = e t + 4 e        b_high[1] column g, k = e t + 12 e

#define TCGEMM_MMA(letter, name, selector)                                                        \
  asm("mma.sp::ordered_metadata.sync.aligned." name                                               \
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, " selector \
      ";"                                                                                         \
      : "+" letter(d[0]), "+" letter(d[1]), "+" letter(d[2]), "+" letter(d[3])                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low[0]), "r"(b_low[1]), "r"(b_high[0]), \
        "r"(b_high[1]), "r"(metadata))

// A metadata register serves two k-steps; half of the lanes hold the metadata of each.
#define TCGEMM_MMA_STEP(letter, name) \
  if (step == 0)                      \
    TCGEMM_MMA(letter, name, "0x0");  \
  else                                \
    TCGEMM_MMA(letter, name, "0x1")

// d += a * b for k-step 0 or 1 of `metadata`. `step` must be a compile-time constant after
// inlining. It is not volatile, for the reason given at mma_sync.
template <DType kA, DType kB>
__device__ inline void mma_sparse(float* d, const std::uint32_t* a, const std::uint32_t* b_low,
                                  const std::uint32_t* b_high, std::uint32_t metadata, int step) {
  using enum DType;
  static_assert(kA == kB);
  if constexpr (kA == bf16) {
    TCGEMM_MMA_STEP("f", "m16n8k32.row.col.f32.bf16.bf16.f32");
  } else if constexpr (kA == f16) {
    TCGEMM_MMA_STEP("f", "m16n8k32.row.col.f32.f16.f16.f32");
  } else {
    static_assert(kA == tf32);
    TCGEMM_MMA_STEP("f", "m16n8k16.row.col.f32.tf32.tf32.f32");
  }
}

// Sums wrap modulo 2^32. The metadata of one k-step fills the registers of all lanes.
template <DType kA, DType kB>
__device__ inline void mma_sparse(std::int32_t* d, const std::uint32_t* a,
                                  const std::uint32_t* b_low, const std::uint32_t* b_high,
                                  std::uint32_t metadata, int) {
  using enum DType;
  if constexpr (kA == s8 && kB == s8)
    TCGEMM_MMA("r", "m16n8k64.row.col.s32.s8.s8.s32", "0x0");
  else if constexpr (kA == s8 && kB == u8)
    TCGEMM_MMA("r", "m16n8k64.row.col.s32.s8.u8.s32", "0x0");
  else if constexpr (kA == u8 && kB == s8)
    TCGEMM_MMA("r", "m16n8k64.row.col.s32.u8.s8.s32", "0x0");
  else {
    static_assert(kA == u8 && kB == u8);
    TCGEMM_MMA("r", "m16n8k64.row.col.s32.u8.u8.s32", "0x0");
  }
}

#undef TCGEMM_MMA_STEP
#undef TCGEMM_MMA

}  // namespace tcgemm::ptx
