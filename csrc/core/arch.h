// The architectures that kernels are compiled for.
#pragma once

#include <cstdint>

namespace tcgemm {

// The architecture that a kernel's code needs. Code for sm_80 and sm_89 also runs on newer GPUs;
// code for sm_90a runs on compute capability 9.0 only. core/code.h says which code a GPU gets.
enum class Arch : std::uint8_t { sm80, sm89, sm90a };

constexpr const char* name(Arch arch) {
  return arch == Arch::sm80 ? "sm80" : arch == Arch::sm89 ? "sm89" : "sm90a";
}

}  // namespace tcgemm
