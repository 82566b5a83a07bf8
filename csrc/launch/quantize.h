// Runs a Quantization on a stream. CUDA builds only.
#pragma once

#include <cstddef>

#include "core/quantize.h"

namespace tcgemm::launch {

// Bytes that quantize needs beside its results.
std::size_t quantize_workspace(const Quantization& quantization);

// Asynchronous; nothing is allocated and nothing synchronises. The device must be current. Throws
// std::runtime_error.
void quantize(const Quantization& quantization, void* workspace, int device, void* stream);

}  // namespace tcgemm::launch
