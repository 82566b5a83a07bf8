// ldmatrix and stmatrix move 8x8 matrices of 16-bit elements between shared memory and the
// fragments of a warp (PTX ISA 9.7.14.5.15 and 16). Lane i holds the address of row i % 8 of matrix
// i / 8.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

template <bool kTransposed>
__device__ inline void ldmatrix_x4(std::uint32_t (&registers)[4], std::uint32_t shared) {
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared)
                 : "memory");
}

// Needs sm_90 or newer. Transposed: a row in shared memory is a column of the fragment.
template <bool kTransposed = false>
__device__ inline void stmatrix_x4(std::uint32_t shared, std::uint32_t r0, std::uint32_t r1,
                                   std::uint32_t r2, std::uint32_t r3) {
  if constexpr (kTransposed)
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
        "r"(r0), "r"(r1), "r"(r2), "r"(r3)
        : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
                 "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}

}  // namespace tcgemm::ptx
