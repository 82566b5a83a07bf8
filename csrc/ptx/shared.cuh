// Addresses in shared memory, as the instructions of this folder take them.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace tcgemm::ptx
