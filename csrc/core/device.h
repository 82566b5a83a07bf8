// The GPU properties that the planner reads: a table of known GPUs, and estimates from what the
// driver reports for all others. Host code without CUDA. docs/dev/devices.md says how to add a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace tcgemm {

enum class RateSource : std::uint8_t { measured, datasheet, driver };

constexpr const char* name(RateSource source) {
  switch (source) {
    case RateSource::measured: return "measured";
    case RateSource::datasheet: return "datasheet";
    case RateSource::driver: return "driver";
  }
  return "";
}

// The cost models of the sm90a kernels count clocks. `clock` is the effective SM clock of 16-bit
// GEMMs, between the boost clock and the clock at the power cap. FP64: before the cap lowers it.
struct HopperRates {
  double clock = 0;               // MHz, that is clocks a microsecond
  double l2_bytes_per_clock = 0;  // from L2 to one multiprocessor
  double f64_clock = 0;           // MHz
  int clusters_of_three = 0;      // that run at one time
  int clusters_of_four = 0;       // the same
};

// FMA a clock of one multiprocessor: f16/bf16 wgmma and f64 mma.sync.
inline constexpr double kHopperFmaPerClock = 2048;
inline constexpr double kHopperF64FmaPerClock = 128;

struct Device {
  const char* name = "";
  int compute_capability = 0;  // 10 * major + minor
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  int shared_bytes = 0;    // largest dynamic shared memory of one CTA
  double memory_rate = 0;  // sustained bytes per second
  double tensor_rate = 0;  // sustained dense f16/bf16 FLOP per second
  double f64_rate = 0;     // sustained FP64 FLOP per second; FP64 units are separate hardware
  RateSource source = RateSource::driver;
  HopperRates hopper;  // compute capability 9.0 only
};

// FLOP per second of a GEMM whose MMA instructions read operands of type `input`. On every
// generation so far, half the bits give twice the rate.
constexpr double rate(const Device& device, DType input) {
  if (input == DType::f64) return device.f64_rate;
  return device.tensor_rate * 16 / bits(input);
}

// A known GPU, and the words of the driver's name that identify it.
struct KnownDevice {
  Device device;
  std::string_view words;
};

// The rates of the H200 are fitted to the measured times of its GEMMs. For the H100 80GB HBM3 they
// are multiplied by ratios that were measured on both GPUs, but its rate of L2 is fitted as well
// (docs/dev/devices.md). The other GPUs have the rates of NVIDIA's datasheets less 10 %, which
// no kernel reaches. Sizes of shared memory and L2 come from the CUDA programming guide's table of
// compute capabilities and from the datasheets.
// The multiprocessors of a GPC are no whole number of clusters: of 132, 117 run clusters of
// three, and 120 run clusters of four.
inline constexpr HopperRates kH200Rates{.clock = 1587,
                                        .l2_bytes_per_clock = 80,
                                        .f64_clock = 1900,
                                        .clusters_of_three = 39,
                                        .clusters_of_four = 30};
inline constexpr HopperRates kH100Rates{.clock = 1600,
                                        .l2_bytes_per_clock = 76,
                                        .f64_clock = 1900,
                                        .clusters_of_three = 39,
                                        .clusters_of_four = 30};
inline constexpr auto kMeasured = RateSource::measured, kDatasheet = RateSource::datasheet;
inline constexpr KnownDevice kKnownDevices[] = {
    {{"H200", 90, 132, 60ll << 20, 232448, 4.2e12, 800e12, 60e12, kMeasured, kH200Rates}, "H200"},
    {{"H100", 90, 132, 50ll << 20, 232448, 2.97e12, 806e12, 60e12, kMeasured, kH100Rates},
     "H100 80GB HBM3"},
    {{"A100", 80, 108, 40ll << 20, 166912, 1.8e12, 280e12, 17e12, kDatasheet, {}}, "A100"},
    {{"A10", 86, 72, 6ll << 20, 101376, 0.54e12, 110e12, 0.45e12, kDatasheet, {}}, "A10"},
    {{"L40S", 89, 142, 96ll << 20, 101376, 0.78e12, 320e12, 1.3e12, kDatasheet, {}}, "L40S"},
    {{"RTX 4090", 89, 128, 72ll << 20, 101376, 0.9e12, 150e12, 1.2e12, kDatasheet, {}}, "RTX 4090"},
};

// Does `text` contain `words` as whole words? Blanks and hyphens separate words, so "A100" is in
// "A100-SXM4-80GB" and "H200" is in "H200 NVL", but not in "GH200 480GB".
constexpr bool contains_words(std::string_view text, std::string_view words) {
  const auto separates = [&](std::size_t i) {
    return i >= text.size() || text[i] == ' ' || text[i] == '-';
  };
  for (std::size_t at = text.find(words); at != std::string_view::npos;
       at = text.find(words, at + 1))
    if ((at == 0 || separates(at - 1)) && separates(at + words.size())) return true;
  return false;
}

// The known GPU with these properties, as the driver reports them, or a null pointer. The number of
// multiprocessors tells variants with the same words apart, such as an RTX 4090 D or a MIG slice.
constexpr const Device* find_known_device(std::string_view name, int compute_capability,
                                          int multiprocessors) {
  for (const KnownDevice& entry : kKnownDevices)
    if (contains_words(name, entry.words) &&
        entry.device.compute_capability == compute_capability &&
        entry.device.multiprocessors == multiprocessors)
      return &entry.device;
  return nullptr;
}

// Clocks and memory bus as the driver reports them.
struct DriverRates {
  double clock_khz = 0;
  double memory_clock_khz = 0;
  int memory_bus_bits = 0;
};

// Sets the rates of a device whose other properties the driver has reported: the rates of a known
// GPU, or estimates. The estimates assume double data rate memory of which 0.85 are reached, and
// the tensor cores of the generation at 0.8 of the maximum clock. On an H200 they give 0.995 times
// the table's memory rate, and a clock of 1584 MHz.
constexpr void set_rates(Device& device, const DriverRates& reported) {
  if (const Device* table_device =
          find_known_device(device.name, device.compute_capability, device.multiprocessors)) {
    device.memory_rate = table_device->memory_rate;
    device.tensor_rate = table_device->tensor_rate;
    device.f64_rate = table_device->f64_rate;
    device.source = table_device->source;
    device.hopper = table_device->hopper;
    return;
  }
  const int capability = device.compute_capability;
  const double fma = capability >= 90 ? kHopperFmaPerClock : capability == 80 ? 1024 : 512;
  const double f64_fma = capability >= 90 ? kHopperF64FmaPerClock : capability == 80 ? 64 : 2;
  const double hertz = 0.8 * 1e3 * reported.clock_khz;
  device.source = RateSource::driver;
  device.memory_rate = 0.85 * 2e3 * reported.memory_clock_khz * reported.memory_bus_bits / 8;
  device.tensor_rate = 2 * fma * device.multiprocessors * hertz;
  device.f64_rate = 2 * f64_fma * device.multiprocessors * hertz;
  // L2 rates are not reported: the lower one of the measured GPUs.
  if (capability == 90)
    device.hopper = {hertz / 1e6, 70, 0.96 * 1e-3 * reported.clock_khz,
                     std::max(1, device.multiprocessors * 13 / 44),
                     std::max(1, device.multiprocessors * 10 / 44)};
}

inline constexpr int kL2Line = 128;  // bytes

// Does each row begin with a line of L2? address: or its alignment, a power of two.
constexpr bool begins_l2_lines(std::uintptr_t address, std::int64_t pitch_bytes) {
  return address % kL2Line == 0 && pitch_bytes % kL2Line == 0;
}

}  // namespace tcgemm
