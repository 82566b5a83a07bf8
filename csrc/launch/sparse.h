// Runs the passes of 2:4 sparsity on a stream. CUDA builds only.
#pragma once

#include "core/sparse.h"

namespace tcgemm::launch {

// Asynchronous; nothing is allocated and nothing synchronises, and CUDA graphs may hold them. The
// device must be current. Throw std::runtime_error.
void compress(const Compression& compression, int device, void* stream);
void decompress(const Decompression& decompression, int device, void* stream);
void gather(const Gathering& gathering, int device, void* stream);
void prune(const Pruning& pruning, int device, void* stream);
void tile(const MetadataTiling& tiling, int device, void* stream);

}  // namespace tcgemm::launch
