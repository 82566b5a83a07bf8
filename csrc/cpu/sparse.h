// The five 2:4 passes on the CPU, as core/sparse.h defines them.
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
