// Which instruction set the CPU code runs on: decided once, at run time.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cpu/dense.h"
#include "cpu/kernels.h"

namespace tcgemm::cpu {
namespace {

Isa chosen_isa() {
  const char* text = std::getenv("TCGEMM_CPU_ISA");
  if (text == nullptr || *text == '\0') return best_isa();
  const std::string wanted = text;
  std::string there;
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (wanted == name(isa)) return isa;
    there += (i ? ", " : "") + std::string(name(isa));
  }
  throw std::runtime_error("TCGEMM_CPU_ISA is \"" + wanted +
                           "\", but this machine has these instruction sets: " + there +
                           ". Set it to one of them, or unset it for the best.");
}

}  // namespace

Isa best_isa() {
  const auto has_avx2 = [] {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  };
  const auto has_avx512 = [] {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  };
  if (!has_avx2()) return Isa::baseline;
  return has_avx512() ? Isa::avx512 : Isa::avx2;
}

Isa active_isa() {
  static const Isa isa = chosen_isa();
  return isa;
}

const KernelSet& kernel_set(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return kAvx512Kernels;
    case Isa::avx2:
      return kAvx2Kernels;
    default:
      return kBaselineKernels;
  }
}

}  // namespace tcgemm::cpu
