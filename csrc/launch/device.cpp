// The properties of this machine's GPUs, from the driver and the table of known GPUs.
#include <cuda_runtime.h>

#include <array>
#include <mutex>
#include <stdexcept>
#include <string>

#include "launch/gemm.h"
#include "launch/launch.h"

namespace tcgemm::launch {
namespace {

constexpr int kMaxDevices = 64;

struct Entry {
  std::once_flag once;
  std::string name;
  Device device;
};

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&value, which, index);
  if (error != cudaSuccess)
    throw std::runtime_error("tcgemm: CUDA device " + std::to_string(index) +
                             " cannot be asked for its attributes: " + cudaGetErrorString(error) +
                             "; check nvidia-smi and CUDA_VISIBLE_DEVICES.");
  return value;
}

void fill(Entry& entry, int index) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess)
    throw std::runtime_error("tcgemm: there is no CUDA device " + std::to_string(index) + ".");
  entry.name = properties.name;
  Device& device = entry.device;
  device.name = entry.name.c_str();
  device.compute_capability = 10 * properties.major + properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.l2_bytes = properties.l2CacheSize;
  device.shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  set_rates(device, {double(attribute(cudaDevAttrClockRate, index)),
                     double(attribute(cudaDevAttrMemoryClockRate, index)),
                     attribute(cudaDevAttrGlobalMemoryBusWidth, index)});
  // The GPCs of two GPUs with the same name may have different multiprocessors. A grid that is
  // larger than what runs at one time takes twice as long.
  if (device.compute_capability != 90) return;
  HopperRates& hopper = device.hopper;
  if (const int clusters = active_clusters(3, index); clusters > 0)
    hopper.clusters_of_three = clusters;
  if (const int clusters = active_clusters(4, index); clusters > 0)
    hopper.clusters_of_four = clusters;
}

}  // namespace

const Device& device(int index) {
  static std::array<Entry, kMaxDevices> entries;
  if (index < 0 || index >= kMaxDevices)
    throw std::runtime_error("tcgemm: CUDA device index " + std::to_string(index) +
                             " is outside 0.." + std::to_string(kMaxDevices - 1) + ".");
  Entry& entry = entries[index];
  std::call_once(entry.once, [&] { fill(entry, index); });
  return entry.device;
}

}  // namespace tcgemm::launch
