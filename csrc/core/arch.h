// The properties of a GPU that the planner reads. The GPU is the one in the machine or one that the
// caller names.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tcgemm {

// The architecture that a kernel's code needs. Code for sm_80 and sm_89 also runs on newer GPUs;
// code for sm_90a runs on compute capability 9.0 only. core/code.h says which code a GPU gets.
enum class Arch : std::uint8_t { sm80, sm89, sm90a };

constexpr const char* name(Arch arch) {
  return arch == Arch::sm80 ? "sm80" : arch == Arch::sm89 ? "sm89" : "sm90a";
}

struct Device {
  const char* name = "";
  int compute_capability = 0;  // 10 * major + minor
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  int shared_bytes = 0;    // largest dynamic shared memory of one CTA
  double memory_rate = 0;  // sustained bytes per second
  double tensor_rate = 0;  // sustained dense f16/bf16 FLOP per second
  double f64_rate = 0;     // sustained FP64 FLOP per second; FP64 units are separate hardware
};

// FLOP per second of a GEMM whose MMA instructions read operands of type `input`. On every
// generation so far, half the bits give twice the rate.
constexpr double rate(const Device& device, DType input) {
  if (input == DType::f64) return device.f64_rate;
  return device.tensor_rate * 16 / bits(input);
}

// The rates of the H200 are measured: a device-to-device copy, and wgmma and f64 mma.sync on the
// whole chip with random data under the 700 W cap. The rates of the others are those of NVIDIA's
// datasheets less 10 %, which no kernel reaches. Sizes of shared memory and L2 come from the CUDA
// programming guide's table of compute capabilities and from the datasheets.
inline constexpr Device kDevices[] = {
    {"H200", 90, 132, 60ll << 20, 232448, 4.2e12, 800e12, 60e12},
    {"H100", 90, 132, 50ll << 20, 232448, 3.0e12, 800e12, 60e12},
    {"A100", 80, 108, 40ll << 20, 166912, 1.8e12, 280e12, 17e12},
    {"A10", 86, 72, 6ll << 20, 101376, 0.54e12, 110e12, 0.45e12},
    {"L40S", 89, 142, 96ll << 20, 101376, 0.78e12, 320e12, 1.3e12},
    {"RTX 4090", 89, 128, 72ll << 20, 101376, 0.9e12, 150e12, 1.2e12},
};

}  // namespace tcgemm
