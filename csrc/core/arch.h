// What the planner has to know about a GPU, for the one in the machine or for one that is only
// named.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tcgemm {

// The architecture that a kernel's code needs: sm_80 and sm_89 code also runs on anything newer,
// sm_90a code on compute capability 9.0 alone. core/code.h: which of it a GPU gets.
enum class Arch : std::uint8_t { sm80, sm89, sm90a };

constexpr const char* name(Arch arch) {
  return arch == Arch::sm80 ? "sm80" : arch == Arch::sm89 ? "sm89" : "sm90a";
}

struct Device {
  const char* name = "";
  int compute_capability = 0;  // 10 * major + minor
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  int shared_bytes = 0;    // largest dynamic shared memory of one block
  double memory_rate = 0;  // bytes a second, sustained
  double tensor_rate = 0;  // dense f16/bf16 FLOP a second, sustained
  double f64_rate = 0;     // the same of f64, which shares no silicon with the others
};

// FLOP a second of products whose operands the tensor cores take as `input`: twice as fast for half
// the bits, on every generation so far.
constexpr double rate(const Device& device, DType input) {
  if (input == DType::f64) return device.f64_rate;
  return device.tensor_rate * 16 / bits(input);
}

// H200: measured (device-to-device copy; wgmma and f64 mma.sync chip-wide on random data under the
// 700 W cap). The others: NVIDIA's datasheets, less the tenth that no kernel reaches; shared memory
// and L2 from the CUDA programming guide's table of compute capabilities and the datasheets.
inline constexpr Device kDevices[] = {
    {"H200", 90, 132, 60ll << 20, 232448, 4.2e12, 800e12, 60e12},
    {"H100", 90, 132, 50ll << 20, 232448, 3.0e12, 800e12, 60e12},
    {"A100", 80, 108, 40ll << 20, 166912, 1.8e12, 280e12, 17e12},
    {"A10", 86, 72, 6ll << 20, 101376, 0.54e12, 110e12, 0.45e12},
    {"L40S", 89, 142, 96ll << 20, 101376, 0.78e12, 320e12, 1.3e12},
    {"RTX 4090", 89, 128, 72ll << 20, 101376, 0.9e12, 150e12, 1.2e12},
};

}  // namespace tcgemm
