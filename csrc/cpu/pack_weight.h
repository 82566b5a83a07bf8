// Packs a weight as core/pack_weight.h defines it, with the bits of the GPU.
#pragma once

#include "core/pack_weight.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

void pack_weight(const Packing& packing, const Parallel& parallel);

}  // namespace tcgemm::cpu
