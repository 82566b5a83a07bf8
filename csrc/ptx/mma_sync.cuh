// mma.sync.m16n8k16: the product of one warp, all operands in registers (PTX ISA 9.7.14.5.8 and
// 14).
//
// lane = 4 * g + t; two neighbours along k (or n) a 32-bit register:
//   a[0] row g, k 2t   a[1] row g + 8, k 2t   a[2] row g, k 2t + 8   a[3] row g + 8, k 2t + 8
//   b[0] column g, k 2t        b[1] column g, k 2t + 8
//   d: see tile/fragment.cuh
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tcgemm::ptx {

// d += a * b: four f32 registers, or two of f16 pairs. A pure function of registers, so not
// volatile: the compiler may move it between loads.
template <DType kInput>
__device__ inline void mma_sync(float* d, const std::uint32_t* a, const std::uint32_t* b) {
  static_assert(kInput == DType::f16 || kInput == DType::bf16);
  if constexpr (kInput == DType::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <DType kInput>
__device__ inline void mma_sync(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b) {
  static_assert(kInput == DType::f16);
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
      "{%0, %1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace tcgemm::ptx
