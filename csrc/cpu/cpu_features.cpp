// Chooses the instruction set of the CPU code once, at run time.
#include <cpuid.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cpu/dense.h"
#include "cpu/kernels.h"

namespace tcgemm::cpu {
namespace {

CpuFeatures requested_cpu_features() {
  const char* text = std::getenv("TCGEMM_CPU_ISA");
  if (text == nullptr || *text == '\0') return best_cpu_features();
  const std::string requested = text;
  std::string available;
  for (int i = 0; i <= static_cast<int>(best_cpu_features()); ++i) {
    const CpuFeatures features = static_cast<CpuFeatures>(i);
    if (requested == name(features)) return features;
    available += (i ? ", " : "") + std::string(name(features));
  }
  throw std::runtime_error("TCGEMM_CPU_ISA is \"" + requested +
                           "\", but this machine has these instruction sets: " + available +
                           ". Set it to one of them, or unset it for the best.");
}

}  // namespace

CpuFeatures best_cpu_features() {
  // __builtin_cpu_supports of older clang does not know "f16c". Support of AVX2 by the operating
  // system, which the builtin asks for, covers F16C.
  const auto has_f16c = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  };
  const auto has_avx2 = [&] {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  };
  const auto has_avx512 = [] {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  };
  if (!has_avx2()) return CpuFeatures::baseline;
  return has_avx512() ? CpuFeatures::avx512 : CpuFeatures::avx2;
}

CpuFeatures active_cpu_features() {
  static const CpuFeatures features = requested_cpu_features();
  return features;
}

const KernelSet& kernel_set(CpuFeatures features) {
  switch (features) {
    case CpuFeatures::avx512: return kAvx512Kernels;
    case CpuFeatures::avx2: return kAvx2Kernels;
    case CpuFeatures::baseline: break;
  }
  return kBaselineKernels;
}

}  // namespace tcgemm::cpu
