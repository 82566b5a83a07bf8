// mma.sync.m16n8, one warp, all operands in registers (PTX ISA 9.7.14.5.7 to 14).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tcgemm::ptx {

// The fragment layout is the same for all types: a 32-bit register holds e = 32 / bits consecutive
// elements along k, and k is 8 e. lane = 4 * g + t:
//   a[0] row g,     k = e t       a[2] row g,     k = e t + 4 e
//   a[1] row g + 8, k = e t       a[3] row g + 8, k = e t + 4 e
//   b[0] column g,  k = e t       b[1] column g,  k = e t + 4 e       d: see tile/fragment.cuh

#define TCGEMM_MMA(letter, name)                                                                  \
  asm("mma.sync.aligned." name " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+" letter(d[0]), "+" letter(d[1]), "+" letter(d[2]), "+" letter(d[3])                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// d += a * b. d is four f32 or s32 registers, or two registers of f16 pairs. The asm only reads and
// writes registers, so it is not volatile, and the compiler may move it between loads. fp8 needs
// sm_89; on sm_90 and newer ptxas emulates it by f16 MMA, and s4 and u4 by s8 MMA.
template <DType kA, DType kB>
__device__ inline void mma_sync(float* d, const std::uint32_t* a, const std::uint32_t* b) {
  using enum DType;
  if constexpr (kA == bf16 && kB == bf16)
    TCGEMM_MMA("f", "m16n8k16.row.col.f32.bf16.bf16.f32");
  else if constexpr (kA == f16 && kB == f16)
    TCGEMM_MMA("f", "m16n8k16.row.col.f32.f16.f16.f32");
  else if constexpr (kA == tf32 && kB == tf32)
    TCGEMM_MMA("f", "m16n8k8.row.col.f32.tf32.tf32.f32");
  else if constexpr (kA == e4m3 && kB == e4m3)
    TCGEMM_MMA("f", "m16n8k32.row.col.f32.e4m3.e4m3.f32");
  else if constexpr (kA == e4m3 && kB == e5m2)
    TCGEMM_MMA("f", "m16n8k32.row.col.f32.e4m3.e5m2.f32");
  else if constexpr (kA == e5m2 && kB == e4m3)
    TCGEMM_MMA("f", "m16n8k32.row.col.f32.e5m2.e4m3.f32");
  else {
    static_assert(kA == e5m2 && kB == e5m2);
    TCGEMM_MMA("f", "m16n8k32.row.col.f32.e5m2.e5m2.f32");
  }
}

// Sums wrap modulo 2^32.
template <DType kA, DType kB>
__device__ inline void mma_sync(std::int32_t* d, const std::uint32_t* a, const std::uint32_t* b) {
  using enum DType;
  if constexpr (kA == b1 && kB == b1)
    TCGEMM_MMA("r", "m16n8k256.row.col.s32.b1.b1.s32.and.popc");
  else if constexpr (kA == s4 && kB == s4)
    TCGEMM_MMA("r", "m16n8k64.row.col.s32.s4.s4.s32");
  else if constexpr (kA == s4 && kB == u4)
    TCGEMM_MMA("r", "m16n8k64.row.col.s32.s4.u4.s32");
  else if constexpr (kA == u4 && kB == s4)
    TCGEMM_MMA("r", "m16n8k64.row.col.s32.u4.s4.s32");
  else if constexpr (kA == u4 && kB == u4)
    TCGEMM_MMA("r", "m16n8k64.row.col.s32.u4.u4.s32");
  else if constexpr (kA == s8 && kB == s8)
    TCGEMM_MMA("r", "m16n8k32.row.col.s32.s8.s8.s32");
  else if constexpr (kA == s8 && kB == u8)
    TCGEMM_MMA("r", "m16n8k32.row.col.s32.s8.u8.s32");
  else if constexpr (kA == u8 && kB == s8)
    TCGEMM_MMA("r", "m16n8k32.row.col.s32.u8.s8.s32");
  else {
    static_assert(kA == u8 && kB == u8);
    TCGEMM_MMA("r", "m16n8k32.row.col.s32.u8.u8.s32");
  }
}

#undef TCGEMM_MMA

template <DType kA, DType kB>
__device__ inline void mma_sync(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b) {
  static_assert(kA == DType::f16 && kB == DType::f16);
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
      "{%0, %1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace tcgemm::ptx
