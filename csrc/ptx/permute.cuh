// prmt selects the bytes of a word from two words (PTX ISA 9.7.9.7). A selector of 8 + i fills its
// byte with the sign bit of byte i; __byte_perm does not support these.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

template <unsigned kSelectors>
__device__ inline std::uint32_t permute(std::uint32_t low, std::uint32_t high) {
  std::uint32_t word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "n"(kSelectors));
  return word;
}

// Fills each element of kSize bytes with its top bit.
template <int kSize>
__device__ inline std::uint32_t fill_sign(std::uint32_t word) {
  return permute<kSize == 1 ? 0xba98 : kSize == 2 ? 0xbb99 : 0xbbbb>(word, 0);
}

}  // namespace tcgemm::ptx
