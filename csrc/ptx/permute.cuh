// Bytes of two words put together anew (PTX ISA 9.7.9.7), with the half of the instruction that
// __byte_perm leaves out: a selector of 8 + i fills its byte with the sign of byte i.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

template <unsigned kSelectors>
__device__ inline std::uint32_t permute(std::uint32_t low, std::uint32_t high) {
  std::uint32_t word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "n"(kSelectors));
  return word;
}

// Elements of kSize bytes -> all ones where their top bit is set, zero elsewhere.
template <int kSize>
__device__ inline std::uint32_t spread(std::uint32_t word) {
  return permute<kSize == 1 ? 0xba98 : kSize == 2 ? 0xbb99 : 0xbbbb>(word, 0);
}

}  // namespace tcgemm::ptx
