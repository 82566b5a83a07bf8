// Launches a step's kernel, and reports its registers and shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <type_traits>

#include "lab/ladder.h"

namespace tcgemm::ladder {

inline bool failed(Call& call, cudaError_t status) {
  if (status == cudaSuccess) return false;
  std::snprintf(call.error, sizeof(call.error), "CUDA says of %s: %s", call.step,
                cudaGetErrorString(status));
  return true;
}

// Is the current GPU of this compute capability or later? If not, writes an error.
inline bool has_capability(Call& call, int major) {
  int device = 0, device_major = 0;
  if (failed(call, cudaGetDevice(&device)) ||
      failed(call,
             cudaDeviceGetAttribute(&device_major, cudaDevAttrComputeCapabilityMajor, device)))
    return false;
  if (device_major < major)
    std::snprintf(call.error, sizeof(call.error),
                  "this variant of %s needs compute capability %d.0, but the GPU has %d.x",
                  call.step, major, device_major);
  return device_major >= major;
}

// Has a block of the current GPU so much shared memory? If not, writes an error.
inline bool has_shared(Call& call, int bytes) {
  int device = 0, most = 0;
  if (failed(call, cudaGetDevice(&device)) ||
      failed(call, cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)))
    return false;
  if (bytes > most)
    std::snprintf(call.error, sizeof(call.error),
                  "this variant of %s needs %d bytes of shared memory, but a block has %d",
                  call.step, bytes, most);
  return bytes <= most;
}

template <typename... Parameters>
void launch(Call& call, void (*kernel)(Parameters...), dim3 grid, dim3 block, int dynamic_shared,
            std::type_identity_t<Parameters>... arguments) {
  const void* function = reinterpret_cast<const void*>(kernel);
  if (!has_shared(call, dynamic_shared)) return;
  // A block gets more than 48 KB only if the kernel asks for it.
  if (failed(call, cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        dynamic_shared)))
    return;
  cudaFuncAttributes attributes;
  if (failed(call, cudaFuncGetAttributes(&attributes, function))) return;
  call.registers = attributes.numRegs;
  call.static_shared = int(attributes.sharedSizeBytes);
  call.dynamic_shared = dynamic_shared;
  call.local_bytes = int(attributes.localSizeBytes);
  call.threads = int(block.x * block.y);
  call.blocks = int(grid.x * grid.y);
  kernel<<<grid, block, dynamic_shared, static_cast<cudaStream_t>(call.stream)>>>(arguments...);
  failed(call, cudaGetLastError());
}

}  // namespace tcgemm::ladder
