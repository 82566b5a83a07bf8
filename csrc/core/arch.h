// The architectures that kernels are compiled for.
#pragma once

#include <cstdint>

namespace tcgemm {

// The architecture that a kernel's code needs. Code for sm_80 and sm_89 also runs on newer GPUs;
// code for sm_90a runs on compute capability 9.0 only. core/code.h says which code a GPU gets.
enum class Arch : std::uint8_t { sm80, sm89, sm90a };

constexpr const char* name(Arch arch) {
  switch (arch) {
    case Arch::sm80: return "sm80";
    case Arch::sm89: return "sm89";
    case Arch::sm90a: return "sm90a";
  }
  return "";
}

// The oldest compute capability that runs the code, times 10.
constexpr int compute_capability(Arch arch) {
  switch (arch) {
    case Arch::sm80: return 80;
    case Arch::sm89: return 89;
    case Arch::sm90a: return 90;
  }
  return 0;
}

}  // namespace tcgemm
