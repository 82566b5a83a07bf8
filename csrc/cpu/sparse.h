// Structured sparsity on the CPU: core/sparse.h is the definition of all five.
#pragma once

#include "core/sparse.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

void compress(const Compression& compression, const Parallel& parallel);
void decompress(const Decompression& decompression, const Parallel& parallel);
void gather(const Gathering& gathering, const Parallel& parallel);
void prune(const Pruning& pruning, const Parallel& parallel);
void tile(const MetadataTiling& tiling, const Parallel& parallel);

}  // namespace tcgemm::cpu
