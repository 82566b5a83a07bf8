// Launches the passes of 2:4 sparsity on a stream. CUDA builds only.
#pragma once

#include "core/sparse.h"

namespace tcgemm::launch {

// The calls are asynchronous: they allocate nothing, do not synchronise, and can be captured in
// CUDA graphs. The device must be current. They throw std::runtime_error.
void compress(const Compression& compression, int device, void* stream);
void decompress(const Decompression& decompression, int device, void* stream);
void gather(const Gathering& gathering, int device, void* stream);
void prune(const Pruning& pruning, int device, void* stream);
void tile(const MetadataTiling& tiling, int device, void* stream);

}  // namespace tcgemm::launch
