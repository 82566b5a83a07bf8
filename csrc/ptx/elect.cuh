// One lane of a warp (PTX ISA 9.7.14.2 elect.sync).
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// True in one lane, always the same, of a warp that comes here together. What it guards is known to
// be one thread's: TMA under a comparison of threadIdx gets a loop over the lanes.
__device__ inline bool elect() {
  std::uint32_t elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace tcgemm::ptx
