// Launches a Quantization on a stream. CUDA builds only.
#pragma once

#include <cstddef>

#include "core/quantize.h"

namespace tcgemm::launch {

// Bytes of workspace that quantize needs.
std::size_t quantize_workspace(const Quantization& quantization);

// The call is asynchronous: it allocates nothing and does not synchronise. The device must be
// current. Throws std::runtime_error.
void quantize(const Quantization& quantization, void* workspace, int device, void* stream);

}  // namespace tcgemm::launch
