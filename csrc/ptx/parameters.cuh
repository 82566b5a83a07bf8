// The parameters of a kernel, which lie in constant memory (PTX ISA 5.1.6.1).
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// A warp reads a word of each line of the first kBytes of the parameters, so that later reads of
// other warps find them in the constant cache of the multiprocessor.
template <int kBytes, class Params>
__device__ inline void warm_parameters(const Params& params) {
  constexpr std::uint32_t kLine = 64, kLast = kBytes - 4;
  static_assert(kBytes <= sizeof(Params) && kLast < 32 * kLine);
  const std::uint32_t offset = min(threadIdx.x % 32 * kLine, kLast);
  std::uint32_t word;
  asm volatile(
      "{ .reg .u64 address;\n"
      "cvta.to.param.u64 address, %1;\n"
      "ld.param.u32 %0, [address]; }"
      : "=r"(word)
      : "l"(reinterpret_cast<const char*>(&params) + offset));
  // Without a use of the word ptxas would drop the load.
  if (word == 0x7fedcba9) asm volatile("nanosleep.u32 0;");
}

}  // namespace tcgemm::ptx
