// Instructions of csrc/lab alone: mma.sync.m16n8k8 with float16 sums (PTX ISA 9.7.14.5.7), which
// is HMMA.1688 of Turing, and a shared store of 16 bytes. Both keep their order in the program.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// lane = 4 * g + t; a register holds two elements:
//   a[0] row g, k = 2t        a[1] row g + 8
//   b    column g, k = 2t     d[i] row g + 8i, columns 2t and 2t + 1
//
// d += a * b. It is volatile, since the distance from one store to the next is a step's idea.
__device__ inline void mma_f16_k8(std::uint32_t* d, const std::uint32_t* a, std::uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

__device__ inline void store_shared_x4(std::uint32_t address, uint4 vector) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(vector.x),
               "r"(vector.y), "r"(vector.z), "r"(vector.w)
               : "memory");
}

}  // namespace tcgemm::ptx
