// Election of one lane of a warp (PTX ISA 9.7.14.2 elect.sync).
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// True in one lane of a converged warp, always in the same one. The compiler knows that one thread
// executes the guarded code; for TMA guarded by a comparison of threadIdx it makes a loop over
// lanes.
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
